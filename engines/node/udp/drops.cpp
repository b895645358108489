// Reads the loss counters of the kernel and the adapter, and attributes losses to them.
#include "node/udp/drops.hpp"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/topology.hpp"

namespace assay::node {
namespace {

// Receive losses of an interface (Documentation/networking/statistics.rst).
constexpr std::array interface_counters = {"rx_dropped",      "rx_missed_errors", "rx_fifo_errors",
                                           "rx_over_errors",  "rx_crc_errors",    "rx_frame_errors",
                                           "rx_length_errors"};
constexpr std::array problem_words = {"drop",    "discard",    "miss", "no_buf",
                                      "nobuf",   "out_of_buf", "fifo", "overflow",
                                      "overrun", "pause",      "crc",  "_err"};
constexpr std::uint32_t max_private_counters = 65536;  // adapters with many queues have thousands

// /proc/net/softnet_stat has a line per processor; the second field counts packets that did not fit
// into its queue.
void read_softnet(Counters& counters) {
    std::ifstream file(procfs("net/softnet_stat"));
    std::uint64_t dropped = 0;
    bool has_lines = false;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::uint64_t processed = 0, count = 0;
        if (fields >> std::hex >> processed >> count) {
            has_lines = true;
            dropped += count;
        }
    }
    if (has_lines) counters["softnet.dropped"] = dropped;
}

std::uint64_t value_of(const Counters& counters, const std::string& name) {
    const auto entry = counters.find(name);
    return entry == counters.end() ? 0 : entry->second;
}

// Messages of which some fragments arrived and not all. The kernel counts a failure only when it
// gives up, after 30 s; until then fragments are left over beside those of the whole messages.
std::uint64_t incomplete(const Counters& growth, const std::string& ip, std::uint64_t fragments) {
    const std::uint64_t arrived = value_of(growth, ip + ".fragments"),
                        whole = value_of(growth, ip + ".reassembled");
    // The sender's frames may be smaller than this host's.
    const std::uint64_t each =
        std::max(fragments, whole > 0 && fragments == 1 ? arrived / whole : 1);
    const std::uint64_t left_over = arrived - std::min(arrived, whole * each);
    return std::max(value_of(growth, ip + ".reassembly_failures"), left_over);
}

}  // namespace

Counters read_drops(const std::string& interface) {
    Counters counters = read_protocol_counters();
    read_softnet(counters);
    for (const char* counter : interface_counters) {
        const std::string text =
            read_line(sysfs("class/net/" + interface + "/statistics/" + counter));
        if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos)
            counters[std::string("nic.") + counter] = std::stoull(text);
    }
    return counters;
}

std::uint64_t fragments_of(std::uint64_t size, int mtu, int headers) {
    constexpr int udp_header = 8;
    const int room = (mtu - headers + udp_header) & ~7;  // of a fragment, a multiple of 8 B
    if (mtu <= 0 || room <= 0 ||
        size + static_cast<std::uint64_t>(headers) <= static_cast<std::uint64_t>(mtu))
        return 1;
    const auto bytes = static_cast<std::uint64_t>(room);
    return (size + udp_header + bytes - 1) / bytes;
}

Losses attribute(std::uint64_t lost, std::uint64_t socket, std::uint64_t sender,
                 const Counters& growth, std::uint64_t fragments) {
    std::uint64_t remaining = lost;
    const auto attribute_to = [&remaining](std::uint64_t bound) {
        const std::uint64_t attributed = std::min(remaining, bound);
        remaining -= attributed;
        return attributed;
    };
    const std::uint64_t softnet = value_of(growth, "softnet.dropped");
    // The kernel counts a packet dropped from a processor's queue for the interface as well.
    const std::uint64_t dropped = value_of(growth, "nic.rx_dropped");
    const std::uint64_t dropped_by_driver = dropped > softnet ? dropped - softnet : 0;
    // Drivers report the same loss as missed, over or fifo.
    const std::uint64_t overrun =
        std::max({value_of(growth, "nic.rx_missed_errors"), value_of(growth, "nic.rx_fifo_errors"),
                  value_of(growth, "nic.rx_over_errors")});
    const std::uint64_t damaged = value_of(growth, "nic.rx_crc_errors") +
                                  value_of(growth, "nic.rx_frame_errors") +
                                  value_of(growth, "nic.rx_length_errors");
    Losses losses;
    losses.socket = attribute_to(socket);
    losses.softnet = attribute_to(softnet);
    losses.nic = attribute_to(dropped_by_driver + overrun + damaged);
    // A fragment that the sender dropped is missing here too: its queue comes first.
    losses.sender = attribute_to(sender);
    losses.reassembly =
        attribute_to(incomplete(growth, "ip", fragments) + incomplete(growth, "ip6", fragments));
    losses.unattributed = remaining;
    return losses;
}

Counters read_private_counters(const std::string& interface) {
    Counters counters;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return counters;
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    const auto ethtool = [&](void* request_data) {
        request.ifr_data = static_cast<char*>(request_data);
        return ioctl(fd, SIOCETHTOOL, &request) == 0;
    };
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    if (ethtool(&info) && info.n_stats > 0 && info.n_stats <= max_private_counters) {
        // The kernel writes as many counters as exist by then: space for 64 more.
        std::vector<std::uint64_t> names(2 +
                                         (std::size_t{info.n_stats} + 64) * ETH_GSTRING_LEN / 8);
        std::vector<std::uint64_t> values(2 + std::size_t{info.n_stats} + 64);
        auto* const strings = reinterpret_cast<ethtool_gstrings*>(names.data());
        auto* const stats = reinterpret_cast<ethtool_stats*>(values.data());
        strings->cmd = ETHTOOL_GSTRINGS;
        strings->string_set = ETH_SS_STATS;
        strings->len = info.n_stats;
        stats->cmd = ETHTOOL_GSTATS;
        stats->n_stats = info.n_stats;
        if (ethtool(strings) && ethtool(stats)) {
            for (std::uint32_t i = 0; i < std::min(strings->len, stats->n_stats); ++i) {
                const auto* text =
                    reinterpret_cast<const char*>(strings->data) + std::size_t{i} * ETH_GSTRING_LEN;
                const std::string name(text, strnlen(text, ETH_GSTRING_LEN));
                const bool sending =
                    name.find("tx") != std::string::npos && name.find("rx") == std::string::npos;
                const auto contains = [&](const char* word) {
                    return name.find(word) != std::string::npos;
                };
                if (!sending && std::ranges::any_of(problem_words, contains))
                    counters[name] = stats->data[i];
            }
        }
    }
    close(fd);
    return counters;
}

}  // namespace assay::node
