// available_memory() on the planted machines that Python's function is held against too.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "machine/available_memory.hpp"

using namespace assay;
namespace fs = std::filesystem;

namespace {

// A folder with the files of a machine, which goes with the object.
struct Root {
    explicit Root(const nlohmann::json& files) {
        for (const auto& [name, text] : files.items()) {
            fs::create_directories((path / name).parent_path());
            std::ofstream(path / name) << text.get<std::string>();
        }
    }
    ~Root() { fs::remove_all(path); }
    Root(const Root&) = delete;
    Root& operator=(const Root&) = delete;
    fs::path path = fs::temp_directory_path() / ("assay-machine-" + std::to_string(getpid()));
};

}  // namespace

TEST_CASE("the available memory is the least of the machine's and its control groups'") {
    const auto machines =
        nlohmann::json::parse(std::ifstream(ASSAY_FIXTURES "/available_memory.json"));
    REQUIRE(machines.size() > 5);
    for (const auto& machine : machines) {
        CAPTURE(machine["machine"].get<std::string>());
        const Root root(machine["files"]);
        const auto& expected = machine["available"];
        const std::uint64_t unknown = ~std::uint64_t{0} >> 10 << 10;
        CHECK(available_memory(root.path.c_str()) ==
              (expected.is_null() ? unknown : expected.get<std::uint64_t>()));
    }
}

TEST_CASE("a list of mounts may be longer than any buffer, and have a line that is") {
    std::string mounts = "cut\n";
    for (int k = 0; k < 1000; ++k)
        mounts += "9 1 0:9 / /containers/" + std::string(100, 'x') + " rw - overlay overlay rw\n";
    mounts += "9 1 0:9 / /long rw - overlay overlay lowerdir=" + std::string(100'000, 'y') + "\n";
    mounts += "40 1 0:30 / /groups rw - cgroup2 cgroup2 rw";
    const Root root({{"proc/meminfo", "MemAvailable: 1000 kB\n"},
                     {"proc/self/cgroup", "0::/job\n"},
                     {"proc/self/mountinfo", mounts},
                     {"groups/job/memory.max", "500000\n"},
                     {"groups/job/memory.current", "200000\n"}});
    CHECK(available_memory(root.path.c_str()) == 300'000);
}

TEST_CASE("ASSAY_ROOT plants the machine for all callers") {
    const Root root(nlohmann::json{{"proc/meminfo", "MemAvailable: 3 kB\n"}});
    setenv("ASSAY_ROOT", root.path.c_str(), 1);
    CHECK(available_memory() == 3072);
    unsetenv("ASSAY_ROOT");
    CHECK(available_memory() > (1u << 20));
}
