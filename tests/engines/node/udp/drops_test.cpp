// Tests of drop counters from a fake /proc and /sys, and of the attribution of lost datagrams to
// them.
#include "node/udp/drops.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace assay;
using namespace assay::node;
namespace fs = std::filesystem;

namespace {

class FakeHost {
public:
    FakeHost() : root_(fs::temp_directory_path() / ("assay-drops-" + std::to_string(getpid()))) {
        fs::remove_all(root_);
        setenv("ASSAY_ROOT", root_.c_str(), 1);
        file("proc/net/snmp",
             "Ip: Forwarding DefaultTTL ReasmFails\nIp: 1 64 3\n"
             "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors\nUdp: 100 0 7 5 6\n");
        file("proc/net/snmp6", "Ip6InReceives \t 5\nIp6ReasmFails \t 2\n");
        file("proc/net/softnet_stat", "00ff 00000010 0 0\n00ff 00000001 0 0\n");
        counter("rx_dropped", 20);
        counter("rx_missed_errors", 5);
    }
    ~FakeHost() {
        unsetenv("ASSAY_ROOT");
        fs::remove_all(root_);
    }
    void counter(const std::string& name, long value) const {
        file("sys/class/net/eth0/statistics/" + name, std::to_string(value) + "\n");
    }
    void file(const std::string& path, const std::string& text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }

private:
    fs::path root_;
};

}  // namespace

TEST_CASE("counters of the kernel and the interface are read by name") {
    const FakeHost machine;
    const Counters counters = read_drops("eth0");
    CHECK(counters.at("softnet.dropped") == 17);
    CHECK(counters.at("ip.reassembly_failures") == 3);
    CHECK(counters.at("ip6.reassembly_failures") == 2);
    CHECK(counters.at("udp.receive_buffer_errors") == 6);
    CHECK(counters.at("udp.in_errors") == 7);
    CHECK(counters.at("nic.rx_dropped") == 20);
    CHECK(counters.at("nic.rx_missed_errors") == 5);
    CHECK_FALSE(counters.contains("nic.rx_crc_errors"));
    machine.counter("rx_missed_errors", 9);
    CHECK(growth(counters, read_drops("eth0")) == Counters{{"nic.rx_missed_errors", 4}});
}

TEST_CASE("a host without /proc and /sys has no counters, and everything is unattributed") {
    setenv("ASSAY_ROOT", "/nonexistent", 1);
    CHECK(read_drops("eth0").empty());
    unsetenv("ASSAY_ROOT");
    CHECK(attribute(9, 0, 0, {}).unattributed == 9);
}

TEST_CASE("losses are attributed up to each counter; the rest is unattributed") {
    const Losses losses = attribute(
        100, 10, 4,
        {{"softnet.dropped", 20}, {"nic.rx_missed_errors", 5}, {"ip.reassembly_failures", 7}});
    CHECK(losses.socket == 10);
    CHECK(losses.softnet == 20);
    CHECK(losses.nic == 5);
    CHECK(losses.reassembly == 7);
    CHECK(losses.sender == 4);
    CHECK(losses.unattributed == 54);
}

TEST_CASE("a loss that two counters report is attributed once") {
    // The kernel counts a full processor queue for the interface too; drivers count missed as fifo
    // and over.
    const Losses losses = attribute(100, 0, 0,
                                    {{"softnet.dropped", 20},
                                     {"nic.rx_dropped", 20},
                                     {"nic.rx_missed_errors", 5},
                                     {"nic.rx_fifo_errors", 5}});
    CHECK(losses.softnet == 20);
    CHECK(losses.nic == 5);
    CHECK(losses.unattributed == 75);
}

TEST_CASE("no more is attributed than was lost, since counters are of the whole host") {
    const Losses losses =
        attribute(8, 5, 50, {{"softnet.dropped", 1000}, {"nic.rx_dropped", 5000}});
    CHECK(losses.socket == 5);
    CHECK(losses.softnet == 3);
    CHECK(losses.nic + losses.sender + losses.unattributed == 0);
}

TEST_CASE("a message is cut into as many packets as its path needs") {
    CHECK(fragments_of(1472, 1500, 28) == 1);
    CHECK(fragments_of(1473, 1500, 28) == 2);
    CHECK(fragments_of(8900, 1500, 28) == 7);
    CHECK(fragments_of(8900, 9000, 28) == 1);
    CHECK(fragments_of(8900, 1500, 48) == 7);  // IPv6
}

TEST_CASE("messages of which fragments are missing are known before the kernel gives them up") {
    // 1000 messages of 7 fragments, of which 60 lack one: 940 are whole.
    const Counters waiting{{"ip.fragments", 6940}, {"ip.reassembled", 940}};
    const Losses losses = attribute(60, 0, 0, waiting, 7);
    CHECK(losses.reassembly == 60);
    CHECK(losses.unattributed == 0);
    // A fragment that the sender's queue dropped is missing here, and is the sender's.
    CHECK(attribute(60, 0, 60, waiting, 7).sender == 60);
    // Of messages without any fragment nothing is known here.
    CHECK(attribute(60, 0, 0, {{"ip.fragments", 6580}, {"ip.reassembled", 940}}, 7).unattributed ==
          60);
    CHECK(attribute(60, 0, 0, {{"ip.reassembly_failures", 50}}, 7).reassembly == 50);
    // The sender's MTU is smaller than the receiver's.
    CHECK(attribute(5, 0, 0, {{"ip.fragments", 700}, {"ip.reassembled", 100}}, 1).reassembly == 0);
}
