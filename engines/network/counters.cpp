#include "network/counters.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/topology.hpp"

namespace assay::network {
namespace {

namespace fs = std::filesystem;

constexpr std::array interface_counters = {"rx_bytes",  "tx_bytes",   "rx_errors",
                                           "tx_errors", "rx_dropped", "tx_dropped"};
constexpr std::array port_counters = {
    "port_xmit_data",      "port_rcv_data",   "symbol_error",       "link_downed",
    "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "port_xmit_wait"};
constexpr std::string_view infiniband_type = "32";  // ARPHRD_INFINIBAND

std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
}

std::optional<std::uint64_t> read_count(const std::string& path) {
    const std::string text = read_line(path);
    try {
        return text.empty() ? std::nullopt : std::optional<std::uint64_t>(std::stoull(text));
    } catch (const std::exception&) {
        return std::nullopt;  // "N/A (no PMA)": the port lacks the counter
    }
}

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
}

void read_port(const std::string& device, const std::string& port, Counters& counters) {
    const std::string folder =
        sysfs("class/infiniband/" + device + "/ports/" + port + "/counters/");
    const std::string name = device + ":" + port;
    for (const std::string counter : port_counters)
        if (const auto value = read_count(folder + counter))
            counters[{name, counter}] = counter.ends_with("_data") ? *value * 4 : *value;
}

}  // namespace

Counters read_counters() {
    Counters counters;
    for (const std::string& interface : entries(sysfs("class/net")))
        if (interface != "lo") read_interface(interface, counters);
    for (const std::string& device : entries(sysfs("class/infiniband")))
        for (const std::string& port : entries(sysfs("class/infiniband/" + device + "/ports")))
            read_port(device, port, counters);
    return counters;
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
