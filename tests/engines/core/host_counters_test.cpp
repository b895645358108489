// Tests of the counters of what held a host back, from planted files of the kernel.
#include "core/host_counters.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace assay;
namespace fs = std::filesystem;

namespace {

class PlantedHost {
public:
    PlantedHost()
        : root_(fs::temp_directory_path() / ("assay-limits-" + std::to_string(getpid()))) {
        fs::remove_all(root_);
        setenv("ASSAY_ROOT", root_.c_str(), 1);
    }
    ~PlantedHost() {
        unsetenv("ASSAY_ROOT");
        fs::remove_all(root_);
    }
    void file(const std::string& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }

private:
    fs::path root_;
};

// The growth between two states of the planted files, as facts; without the queues of this machine.
Json facts_of(const Counters& before, const Counters& after) {
    Json facts = limit_facts(growth(before, after));
    for (auto entry = facts.begin(); entry != facts.end();)
        entry =
            entry.key().find("queue.") == std::string::npos ? std::next(entry) : facts.erase(entry);
    return facts;
}

}  // namespace

TEST_CASE("a quota of any control group above the process is read") {
    const PlantedHost host;
    host.file("proc/self/cgroup", "0::/slurm/job7/step0\n");
    const std::string job = "sys/fs/cgroup/slurm/job7/";
    host.file("sys/fs/cgroup/cpu.stat", "usage_usec 5\n");
    host.file(job + "step0/cpu.stat",
              "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
    host.file(job + "step0/cpu.max", "max 100000\n");
    host.file(job + "cpu.max", "20000 100000\n");
    host.file(job + "cpu.stat", "nr_periods 10\nnr_throttled 2\nthrottled_usec 500\n");
    const Counters before = read_host_counters();
    host.file(job + "cpu.stat", "nr_periods 110\nnr_throttled 92\nthrottled_usec 7000500\n");
    CHECK(facts_of(before, read_host_counters()) == Json{{"grown.cpu.periods", 100},
                                                         {"grown.cpu.throttled_periods", 90},
                                                         {"grown.cpu.throttled_us", 7000000},
                                                         {"cpu.quota", 0.2},
                                                         {"cpu.period", 0.1}});
}

TEST_CASE("a quota of control groups of version 1 is read, wherever they are mounted") {
    const PlantedHost host;
    host.file("proc/self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job\n0::/\n");
    host.file("proc/self/mountinfo",
              "40 24 0:30 / /cgroups/by\\040time rw - cgroup cgroup rw,cpu,cpuacct\n");
    const std::string job = "cgroups/by time/job/";
    host.file(job + "cpu.cfs_quota_us", "150000\n");
    host.file(job + "cpu.cfs_period_us", "100000\n");
    host.file(job + "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
    const Counters before = read_host_counters();
    host.file(job + "cpu.stat", "nr_periods 50\nnr_throttled 40\nthrottled_time 3000000\n");
    const Json facts = facts_of(before, read_host_counters());
    CHECK(facts["cpu.quota"] == 1.5);
    CHECK(facts["grown.cpu.throttled_us"] == 3000);
}

TEST_CASE("full buffers and missing fragments are facts; what grows when all is well is none") {
    const PlantedHost host;
    const auto snmp = [&](int datagrams, int errors, int failures) {
        host.file("proc/net/snmp",
                  "Ip: Forwarding ReasmTimeout ReasmReqds ReasmOKs ReasmFails\nIp: 1 0 " +
                      std::to_string(7 * datagrams) + " " + std::to_string(datagrams) + " " +
                      std::to_string(failures) +
                      "\nTcp: MaxConn InSegs\nTcp: -1 5\nUdp: InDatagrams RcvbufErrors "
                      "SndbufErrors\nUdp: " +
                      std::to_string(datagrams) + " " + std::to_string(errors) + " 0\n");
    };
    snmp(100, 0, 0);
    const Counters before = read_host_counters();
    snmp(200, 0, 0);
    CHECK(facts_of(before, read_host_counters()).empty());
    snmp(200, 9, 3);
    const Json facts = facts_of(before, read_host_counters());
    CHECK(facts["grown.udp.receive_buffer_errors"] == 9);
    CHECK(facts["grown.ip.reassembly_failures"] == 3);
    CHECK(facts["grown.udp.in_datagrams"] == 100);
    CHECK_FALSE(facts.contains("grown.udp.send_buffer_errors"));
}
