// Tests of available_memory(), on planted files of /proc and /sys, and of start_helper_thread().
#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "storage/store/available_memory.hpp"
#include "storage/store/helper_thread.hpp"

using namespace assay::storage;
namespace fs = std::filesystem;

namespace {

// Planted files of /proc and /sys. The machine has 1000 KiB available.
struct Machine {
    fs::path root = fs::temp_directory_path() / ("assay-limits-" + std::to_string(getpid()));
    Machine() { plant("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable:   1000 kB\n"); }
    ~Machine() { fs::remove_all(root); }
    void plant(const std::string& name, const std::string& text) const {
        fs::create_directories((root / name).parent_path());
        std::ofstream(root / name) << text;
    }
    std::uint64_t available() const { return available_memory(root); }
};

void* count_processors(void* result) {
    // The affinity is set after the thread has started.
    for (int attempt = 0; attempt < 60'000; ++attempt, usleep(1000)) {
        cpu_set_t set;
        CPU_ZERO(&set);
        sched_getaffinity(0, sizeof set, &set);
        *static_cast<int*>(result) = CPU_COUNT(&set);
        if (CPU_COUNT(&set) > 1) break;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("available memory without control groups is the machine's") {
    CHECK(Machine().available() == 1000 << 10);
}

TEST_CASE("available memory respects a control group of version 2") {
    const Machine machine;
    machine.plant("proc/self/cgroup", "0::/job/step\n");
    const std::string step = "sys/fs/cgroup/job/step/";
    machine.plant(step + "memory.max", "500000\n");
    machine.plant(step + "memory.current", "200000\n");
    CHECK(machine.available() == 300000);
    machine.plant(step + "memory.stat", "anon 100\nactive_file 7\ninactive_file 50000\n");
    CHECK(machine.available() == 350000);
    machine.plant(step + "memory.current", "900000\n");
    CHECK(machine.available() == 0);
    machine.plant(step + "memory.max", "max\n");
    CHECK(machine.available() == 1000 << 10);
    // The limit of a parent holds too.
    machine.plant("sys/fs/cgroup/job/memory.max", "100000\n");
    machine.plant("sys/fs/cgroup/job/memory.current", "1000\n");
    CHECK(machine.available() == 99000);
}

TEST_CASE("available memory in a container that shows the host's path") {
    const Machine machine;
    machine.plant("proc/self/cgroup", "0::/of/the/host\n");
    machine.plant("sys/fs/cgroup/memory.max", "4096\n");
    machine.plant("sys/fs/cgroup/memory.current", "96\n");
    CHECK(machine.available() == 4000);
}

TEST_CASE("available memory respects a control group of version 1") {
    const Machine machine;
    machine.plant("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:hugetlb,memory:/slurm\n0::/x\n");
    const std::string group = "sys/fs/cgroup/memory/slurm/memory.";
    machine.plant(group + "limit_in_bytes", "600000\n");
    machine.plant(group + "usage_in_bytes", "500000\n");
    machine.plant(group + "stat", "inactive_file 1\ntotal_inactive_file 20000\n");
    CHECK(machine.available() == 120000);
    machine.plant(group + "limit_in_bytes",
                  "9223372036854771712\n");  // the value of version 1 for no limit
    CHECK(machine.available() == 1000 << 10);
}

TEST_CASE("helper threads are not bound to the processor of their rank") {
    cpu_set_t before, first_processor;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    if (CPU_COUNT(&before) < 2) return;
    CPU_ZERO(&first_processor);
    for (int processor = 0; !CPU_COUNT(&first_processor); ++processor)
        if (CPU_ISSET(processor, &before)) CPU_SET(processor, &first_processor);
    REQUIRE(sched_setaffinity(0, sizeof first_processor, &first_processor) == 0);
    pthread_t thread;
    int processors = 0;
    const bool started = start_helper_thread(thread, count_processors, &processors);
    if (started) pthread_join(thread, nullptr);
    sched_setaffinity(0, sizeof before, &before);
    REQUIRE(started);
    CHECK(processors >= CPU_COUNT(&before));
}
