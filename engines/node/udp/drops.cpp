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
#include <string_view>
#include <vector>

#include "core/topology.hpp"

namespace assay::node {
namespace {

// Of Documentation/networking/statistics.rst: what an interface lost or refused on reception.
constexpr std::array interface_counters = {"rx_dropped",      "rx_missed_errors", "rx_fifo_errors",
                                           "rx_over_errors",  "rx_crc_errors",    "rx_frame_errors",
                                           "rx_length_errors"};
constexpr std::array trouble = {"drop", "discard",  "miss",    "no_buf", "nobuf", "out_of_buf",
                                "fifo", "overflow", "overrun", "pause",  "crc",   "_err"};
constexpr std::uint32_t most_private = 65536;  // adapters with many queues have thousands

// Two lines a protocol in /proc/net/snmp: names, then values.
void read_snmp(DropCounters& counters) {
    std::ifstream file(procfs("net/snmp"));
    for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
        std::istringstream name_words(names), value_words(values);
        std::string protocol, name, skipped;
        name_words >> protocol;
        value_words >> skipped;
        for (std::uint64_t value; name_words >> name && value_words >> value;) {
            if (protocol == "Udp:" && name == "RcvbufErrors")
                counters["udp.receive_buffer_errors"] = value;
            if (protocol == "Udp:" && name == "InErrors") counters["udp.in_errors"] = value;
            if (protocol == "Ip:" && name == "ReasmFails")
                counters["ip.reassembly_failures"] = value;
        }
    }
    std::ifstream six(procfs("net/snmp6"));
    std::string name;
    for (std::uint64_t value; six >> name >> value;)
        if (name == "Ip6ReasmFails") counters["ip6.reassembly_failures"] = value;
}

// A line a processor; the second field counts what did not fit into its queue.
void read_softnet(DropCounters& counters) {
    std::ifstream file(procfs("net/softnet_stat"));
    std::uint64_t dropped = 0;
    bool found = false;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::uint64_t processed = 0, count = 0;
        if (words >> std::hex >> processed >> count) found = true, dropped += count;
    }
    if (found) counters["softnet.dropped"] = dropped;
}

std::uint64_t of(const DropCounters& counters, const std::string& name) {
    const auto found = counters.find(name);
    return found == counters.end() ? 0 : found->second;
}

}  // namespace

DropCounters read_drops(const std::string& interface) {
    DropCounters counters;
    read_snmp(counters);
    read_softnet(counters);
    for (const char* counter : interface_counters) {
        const std::string text =
            read_line(sysfs("class/net/" + interface + "/statistics/" + counter));
        if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos)
            counters[std::string("nic.") + counter] = std::stoull(text);
    }
    return counters;
}

DropCounters grown(const DropCounters& before, const DropCounters& after) {
    DropCounters difference;
    for (const auto& [name, value] : after)
        if (const auto earlier = of(before, name); value > earlier && before.contains(name))
            difference[name] = value - earlier;
    return difference;
}

Losses attribute(std::uint64_t lost, std::uint64_t socket, std::uint64_t sender,
                 const DropCounters& grown) {
    std::uint64_t left = lost;
    const auto take = [&left](std::uint64_t counted) {
        const std::uint64_t taken = std::min(left, counted);
        left -= taken;
        return taken;
    };
    const std::uint64_t softnet = of(grown, "softnet.dropped");
    // The kernel counts what did not fit into a processor's queue for the interface as well.
    const std::uint64_t dropped = of(grown, "nic.rx_dropped");
    const std::uint64_t refused = dropped > softnet ? dropped - softnet : 0;
    // Drivers report one and the same loss as missed, as over or as fifo.
    const std::uint64_t no_room =
        std::max({of(grown, "nic.rx_missed_errors"), of(grown, "nic.rx_fifo_errors"),
                  of(grown, "nic.rx_over_errors")});
    const std::uint64_t damaged = of(grown, "nic.rx_crc_errors") +
                                  of(grown, "nic.rx_frame_errors") +
                                  of(grown, "nic.rx_length_errors");
    Losses losses;
    losses.socket = take(socket);
    losses.softnet = take(softnet);
    losses.nic = take(refused + no_room + damaged);
    losses.reassembly =
        take(of(grown, "ip.reassembly_failures") + of(grown, "ip6.reassembly_failures"));
    losses.sender = take(sender);
    losses.unseen = left;
    return losses;
}

DropCounters read_private_counters(const std::string& interface) {
    DropCounters counters;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return counters;
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    const auto ask = [&](void* what) {
        request.ifr_data = static_cast<char*>(what);
        return ioctl(fd, SIOCETHTOOL, &request) == 0;
    };
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    if (ask(&info) && info.n_stats > 0 && info.n_stats <= most_private) {
        // Room for counters that appear between the calls would not help: the kernel fills as many
        // as there are.
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
        if (ask(strings) && ask(stats)) {
            for (std::uint32_t i = 0; i < std::min(strings->len, stats->n_stats); ++i) {
                const auto* text =
                    reinterpret_cast<const char*>(strings->data) + std::size_t{i} * ETH_GSTRING_LEN;
                const std::string name(text, strnlen(text, ETH_GSTRING_LEN));
                const bool sending =
                    name.find("tx") != std::string::npos && name.find("rx") == std::string::npos;
                const auto speaks_of = [&](const char* word) {
                    return name.find(word) != std::string::npos;
                };
                if (!sending && std::ranges::any_of(trouble, speaks_of))
                    counters[name] = stats->data[i];
            }
        }
    }
    close(fd);
    return counters;
}

}  // namespace assay::node
