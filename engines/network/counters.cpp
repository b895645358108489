// Reads the port and TCP counters of this host from /sys and /proc.
#include "network/counters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/topology.hpp"

namespace assay::network {
namespace {

constexpr std::array interface_counters = {
    "rx_bytes",   "tx_bytes",      "rx_errors",       "tx_errors",        "rx_dropped",
    "tx_dropped", "rx_crc_errors", "rx_frame_errors", "rx_missed_errors", "tx_carrier_errors"};
constexpr std::array port_counters = {"port_xmit_data",
                                      "port_rcv_data",
                                      "symbol_error",
                                      "link_downed",
                                      "link_error_recovery",
                                      "port_rcv_errors",
                                      "port_xmit_discards",
                                      "port_xmit_wait",
                                      "port_rcv_remote_physical_errors",
                                      "local_link_integrity_errors",
                                      "excessive_buffer_overrun_errors"};
// Adapters without port_*_data count RDMA bytes among their own counters: EFA and bnxt_re
// (tx_bytes), irdma (ip4OutOctets), erdma (hw_tx_bytes_cnt). Names as in their drivers in Linux.
struct HardwareCounter {
    const char *file, *counter;
};
constexpr std::array hardware_counters = {
    HardwareCounter{"tx_bytes", "tx_bytes"},        HardwareCounter{"rx_bytes", "rx_bytes"},
    HardwareCounter{"ip4OutOctets", "tx_bytes"},    HardwareCounter{"ip6OutOctets", "tx_bytes"},
    HardwareCounter{"ip4InOctets", "rx_bytes"},     HardwareCounter{"ip6InOctets", "rx_bytes"},
    HardwareCounter{"hw_tx_bytes_cnt", "tx_bytes"}, HardwareCounter{"hw_rx_bytes_cnt", "rx_bytes"}};
// Of the host's TCP (of its network namespace), by section and name in /proc/net.
struct TcpCounter {
    const char *file, *section, *name, *counter;
};
constexpr std::array tcp_counters = {
    TcpCounter{"net/snmp", "Tcp:", "OutSegs", "tcp_sent"},
    TcpCounter{"net/snmp", "Tcp:", "RetransSegs", "tcp_retransmitted"},
    TcpCounter{"net/snmp", "Tcp:", "InSegs", "tcp_received"},
    TcpCounter{"net/netstat", "TcpExt:", "TCPOFOQueue", "tcp_out_of_order"},
    TcpCounter{"net/netstat", "TcpExt:", "TCPTimeouts", "tcp_timeouts"}};
constexpr std::string_view infiniband_type = "32";  // ARPHRD_INFINIBAND

// The number in a text; none for other texts, such as "N/A (no PMA)" of a port without the counter.
std::optional<std::uint64_t> parse_count(const std::string& text) {
    try {
        return text.empty() ? std::nullopt : std::optional<std::uint64_t>(std::stoull(text));
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

std::optional<std::uint64_t> read_count(const std::string& path) {
    return parse_count(read_line(path));
}

// Whether the bytes of an interface are counted by no other device: it is neither above another
// interface (a bond, a bridge) nor IP over InfiniBand.
bool has_own_traffic(const std::string& interface) {
    const std::string folder = sysfs("class/net/" + interface);
    if (read_line(folder + "/type") == infiniband_type) return false;
    return std::ranges::none_of(entries(folder),
                                [](const std::string& e) { return e.starts_with("lower_"); });
}

void read_interface(const std::string& interface, Counters& counters) {
    for (const char* counter : interface_counters)
        if (const auto value =
                read_count(sysfs("class/net/" + interface + "/statistics/" + counter)))
            counters[{interface, counter}] = *value;
    if (const auto value = read_count(sysfs("class/net/" + interface + "/carrier_changes")))
        counters[{interface, "carrier_changes"}] = *value;
}

void read_port(const std::string& device, const std::string& port, Counters& counters) {
    const std::string device_folder = sysfs("class/infiniband/" + device);
    const std::string port_folder = device_folder + "/ports/" + port;
    const std::string folder = port_folder + "/counters/";
    const std::string name = device + ":" + port;
    for (const HardwareCounter& hardware : hardware_counters)
        for (const std::string& counter_folder :
             {port_folder, device_folder})  // older drivers: by device
            if (const auto value =
                    read_count(fmt::format("{}/hw_counters/{}", counter_folder, hardware.file))) {
                counters[{name, hardware.counter}] += *value;
                break;
            }
    for (const std::string counter : port_counters)
        if (const auto value = read_count(folder + counter))
            counters[{name, counter}] = counter.ends_with("_data") ? *value * 4 : *value;
}

// A section of /proc/net/snmp is two lines: "Tcp: NAME NAME ..." and "Tcp: VALUE VALUE ...".
void read_tcp(Counters& counters) {
    for (const TcpCounter& tcp_counter : tcp_counters) {
        std::ifstream file(procfs(tcp_counter.file));
        std::string names, values;
        while (std::getline(file, names) && std::getline(file, values)) {
            std::istringstream name_of(names), value_of(values);
            for (std::string name, value; name_of >> name && value_of >> value;) {
                if (name.ends_with(':') && name != tcp_counter.section) break;
                if (name != tcp_counter.name) continue;
                if (const auto count = parse_count(value))
                    counters[{"tcp", tcp_counter.counter}] = *count;
            }
        }
    }
}

}  // namespace

Counters read_counters() {
    Counters found;
    read_tcp(found);
    for (const std::string& interface : entries(sysfs("class/net")))
        if (interface != "lo") read_interface(interface, found);
    for (const std::string& device : entries(sysfs("class/infiniband")))
        for (const std::string& port : entries(sysfs("class/infiniband/" + device + "/ports")))
            read_port(device, port, found);
    return found;
}

Counters difference(const Counters& before, const Counters& after) {
    Counters growth;
    for (const auto& [key, value] : after) {
        const auto earlier = before.find(key);
        if (earlier != before.end() && value > earlier->second)
            growth[key] = value - earlier->second;
    }
    return growth;
}

std::uint64_t bytes_on_the_wire(const Counters& difference) {
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : difference) {
        const auto& [device, counter] = key;
        if (counter == "port_xmit_data" || (counter == "tx_bytes" && has_own_traffic(device)))
            bytes += value;
    }
    return bytes;
}

}  // namespace assay::network
