// Tests of network counters from a fake /sys and /proc: their units, and which of them count as
// traffic of the host.
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
        put("sys/" + below_sys, text);
    }
    void put(const std::string& path, const std::string& text) const {
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

TEST_CASE("RDMA bytes that only hw_counters have are counted, by port or by device") {
    const FakeSysfs sys;
    sys.file("class/infiniband/efa_0/ports/1/hw_counters/tx_bytes", "900");
    sys.file("class/infiniband/efa_0/ports/1/hw_counters/rx_bytes", "800");
    sys.file("class/infiniband/irdma0/ports/1/state", "4: ACTIVE");
    sys.file("class/infiniband/irdma0/hw_counters/ip4OutOctets", "70");
    sys.file("class/infiniband/irdma0/hw_counters/ip6OutOctets", "5");
    const Counters counters = read_counters();
    CHECK(counters.at({"efa_0:1", "tx_bytes"}) == 900);
    CHECK(counters.at({"efa_0:1", "rx_bytes"}) == 800);
    CHECK(counters.at({"irdma0:1", "tx_bytes"}) == 75);
    CHECK(bytes_on_the_wire(counters) == 975);
}

TEST_CASE("TCP counters are read from /proc/net/snmp and /proc/net/netstat") {
    const FakeSysfs sys;
    sys.put("proc/net/snmp",
            "Ip: Forwarding OutSegs\nIp: 1 99\nTcp: InSegs OutSegs RetransSegs\nTcp: 7 8 2");
    sys.put("proc/net/netstat", "TcpExt: SyncookiesSent TCPOFOQueue TCPTimeouts\nTcpExt: 0 3 1");
    const Counters counters = read_counters();
    CHECK(counters.at({"tcp", "tcp_sent"}) == 8);
    CHECK(counters.at({"tcp", "tcp_received"}) == 7);
    CHECK(counters.at({"tcp", "tcp_retransmitted"}) == 2);
    CHECK(counters.at({"tcp", "tcp_out_of_order"}) == 3);
    CHECK(counters.at({"tcp", "tcp_timeouts"}) == 1);
    CHECK(bytes_on_the_wire(counters) == 0);
}

TEST_CASE("difference() has only counters that grew") {
    const Counters before = {{{"a", "x"}, 1}, {{"a", "y"}, 5}, {{"a", "z"}, 9}};
    const Counters after = {{{"a", "x"}, 3}, {{"a", "y"}, 5}, {{"a", "z"}, 2}, {{"b", "x"}, 7}};
    CHECK(difference(before, after) == Counters{{{"a", "x"}, 2}});
}

TEST_CASE(
    "bytes on the wire exclude bonds and IP over InfiniBand, whose bytes other counters have") {
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
