// Counters from a fake /sys: their units, and which of them count as traffic of the host.
#include "network/counters.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace assay::network;
namespace fs = std::filesystem;

namespace {

class FakeSysfs {
public:
    FakeSysfs() : root_(fs::temp_directory_path() / ("assay-sys-" + std::to_string(getpid()))) {
        fs::remove_all(root_);
        fs::create_directories(root_);
        setenv("ASSAY_ROOT", root_.c_str(), 1);
    }
    ~FakeSysfs() {
        unsetenv("ASSAY_ROOT");
        fs::remove_all(root_);
    }
    void file(const std::string& below_sys, const std::string& text) const {
        const std::string path = "sys/" + below_sys;
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text << '\n';
    }
    void sent(const std::string& interface, long bytes) const {
        file("class/net/" + interface + "/statistics/tx_bytes", std::to_string(bytes));
    }
    void port(const std::string& counter, const std::string& value) const {
        file("class/infiniband/mlx5_0/ports/1/counters/" + counter, value);
    }

private:
    fs::path root_;
};

}  // namespace

TEST_CASE("interfaces and ports are counted, loopback is not, data counters are in bytes") {
    const FakeSysfs sys;
    sys.sent("lo", 5);
    sys.sent("eth0", 1000);
    sys.port("port_xmit_data", "250");
    sys.port("symbol_error", "3");
    sys.port("port_xmit_wait", "N/A (no PMA)");
    const Counters counters = read_counters();
    CHECK(counters.at({"eth0", "tx_bytes"}) == 1000);
    CHECK(counters.at({"mlx5_0:1", "port_xmit_data"}) == 1000);
    CHECK(counters.at({"mlx5_0:1", "symbol_error"}) == 3);
    CHECK(counters.size() == 3);
}

TEST_CASE("difference() has only counters that grew") {
    const Counters before = {{{"a", "x"}, 1}, {{"a", "y"}, 5}, {{"a", "z"}, 9}};
    const Counters after = {{{"a", "x"}, 3}, {{"a", "y"}, 5}, {{"a", "z"}, 2}, {{"b", "x"}, 7}};
    CHECK(difference(before, after) == Counters{{{"a", "x"}, 2}});
}

TEST_CASE("bytes on the wire count once: without bonds and IP over InfiniBand") {
    const FakeSysfs sys;
    for (const char* interface : {"eth0", "bond0", "ib0"})
        sys.file("class/net/" + std::string(interface) + "/type", "1");
    sys.file("class/net/ib0/type", "32");
    sys.file("class/net/bond0/lower_eth0/type", "1");
    const Counters growth = {{{"eth0", "tx_bytes"}, 100},
                             {{"bond0", "tx_bytes"}, 100},
                             {{"ib0", "tx_bytes"}, 40},
                             {{"mlx5_0:1", "port_xmit_data"}, 40},
                             {{"eth0", "rx_bytes"}, 7}};
    CHECK(bytes_on_the_wire(growth) == 140);
}

TEST_CASE("a host without /sys has no counters") {
    setenv("ASSAY_ROOT", "/nonexistent", 1);
    CHECK(read_counters().empty());
    unsetenv("ASSAY_ROOT");
}
