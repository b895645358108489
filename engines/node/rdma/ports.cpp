// Reads the RDMA ports of this host from /sys (see ports.hpp).
#include "node/rdma/ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::rdma {
namespace {

namespace fs = std::filesystem;

std::optional<int> parse_whole(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
}

std::optional<std::uint64_t> read_count(const std::string& path) {
    const std::string text = read_line(path);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && !text.empty()
               ? std::optional(value)
               : std::nullopt;  // "N/A (no PMA)": the port lacks the counter
}

// The counters `sent` and `received` of a folder, which count in units of `unit_bytes`.
std::optional<PortBytes> read_bytes(const std::string& folder, const char* sent,
                                    const char* received, std::uint64_t unit_bytes) {
    const auto out = read_count(folder + sent), in = read_count(folder + received);
    return out && in ? std::optional(PortBytes{*out * unit_bytes, *in * unit_bytes}) : std::nullopt;
}

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

std::string sysfs_folder(const std::string& device) { return sysfs("class/infiniband/" + device); }
std::string sysfs_folder(const PortName& name) {
    return sysfs_folder(name.device) + fmt::format("/ports/{}", name.port);
}

std::string port_state(const PortName& name) {
    const std::string text = read_line(sysfs_folder(name) + "/state");  // "4: ACTIVE"
    const std::size_t colon = text.find(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

PortName first_active(const std::vector<std::string>& candidates) {
    std::string states;
    for (const std::string& device : candidates)
        for (const int port : ports(device)) {
            const PortName name{device, port};
            if (is_active(name)) return name;
            states += (states.empty() ? "" : ", ") + name.text() + " is " + port_state(name);
        }
    throw Error("no RDMA port is active (" + (states.empty() ? "there is none" : states) + ")",
                "check the cable, the subnet manager (InfiniBand) and the interface (Ethernet)");
}

}  // namespace

PortName parse_port_name(const std::string& text) {
    const std::size_t colon = text.find(':');
    PortName name{text.substr(0, colon), 0};
    const auto port = colon == std::string::npos
                          ? std::optional(0)
                          : parse_whole(std::string_view(text).substr(colon + 1));
    if (name.device.empty() || name.device.find('/') != std::string::npos || !port || *port < 0)
        throw Error(fmt::format("'{}' is not an RDMA device", text),
                    "give a name such as mlx5_0, or mlx5_0:1 for its port 1");
    name.port = *port;
    return name;
}

std::vector<std::string> devices() { return entries(sysfs("class/infiniband")); }

std::vector<int> ports(const std::string& device) {
    std::vector<int> numbers;
    for (const std::string& entry : entries(sysfs_folder(device) + "/ports"))
        if (const auto number = parse_whole(entry)) numbers.push_back(*number);
    std::ranges::sort(numbers);
    return numbers;
}

bool is_active(const PortName& name) { return port_state(name) == "ACTIVE"; }

PortName find_port(const std::string& device, int port) {
    const std::vector<std::string> existing = devices();
    if (device.empty()) return first_active(existing);
    PortName name = parse_port_name(device);
    if (name.port != 0 && port != 0 && name.port != port)
        throw Error(fmt::format("device {} and port number {} contradict each other", device, port),
                    "give only one of them");
    if (std::ranges::find(existing, name.device) == existing.end())
        throw Error("no RDMA device is called '" + name.device + "'",
                    existing.empty() ? "there is none" : "choose one of " + join(existing));
    if (name.port == 0) name.port = port;
    if (name.port == 0) return first_active({name.device});
    const std::vector<int> numbers = ports(name.device);
    if (std::ranges::find(numbers, name.port) == numbers.end())
        throw Error(fmt::format("{} has no port {}", name.device, name.port),
                    fmt::format("it has {} (--port-number)",
                                numbers.empty()
                                    ? "none"
                                    : fmt::format("{} to {}", numbers.front(), numbers.back())));
    if (!is_active(name))
        throw Error(
            fmt::format("{} is not active, it is {}", name.text(), port_state(name)),
            "check the cable, the subnet manager (InfiniBand) and the interface (Ethernet)");
    return name;
}

bool is_software_device(const std::string& device) {
    std::error_code ignored;
    return fs::canonical(sysfs_folder(device), ignored).string().find("/devices/virtual/") !=
           std::string::npos;
}

std::optional<int> numa_node(const std::string& device) {
    const auto node = parse_whole(read_line(sysfs_folder(device) + "/device/numa_node"));
    return node && *node >= 0 ? node : std::nullopt;
}

std::vector<std::string> interfaces(const PortName& name) {
    std::vector<std::string> names;
    for (const Gid& gid : gids(name))
        if (!gid.interface.empty() && std::ranges::find(names, gid.interface) == names.end())
            names.push_back(gid.interface);
    if (!names.empty()) return names;
    // The kernel counts an adapter's ports from 0 here.
    const std::string adapter = sysfs_folder(name.device) + "/device/net";
    for (const std::string& entry : entries(adapter))
        if (parse_whole(read_line(fmt::format("{}/{}/dev_port", adapter, entry))) == name.port - 1)
            names.push_back(entry);
    return names;
}

std::optional<PortBytes> port_bytes(const PortName& name) {
    // These counters are in words of four bytes, although their names say "data" (InfiniBand
    // Architecture, PMA).
    if (const auto bytes =
            read_bytes(sysfs_folder(name) + "/counters/", "port_xmit_data", "port_rcv_data", 4))
        return bytes;
    const std::string interface = read_line(sysfs_folder(name) + "/gid_attrs/ndevs/0");
    if (interface.empty() || interface.find('/') != std::string::npos) return std::nullopt;
    return read_bytes(sysfs("class/net/" + interface + "/statistics/"), "tx_bytes", "rx_bytes", 1);
}

std::vector<Gid> gids(const PortName& name) {
    std::vector<Gid> table;
    for (const std::string& entry : entries(sysfs_folder(name) + "/gids")) {
        const auto index = parse_whole(entry);
        const std::string address = read_line(sysfs_folder(name) + "/gids/" + entry);
        if (!index || address.find_first_not_of("0:") == std::string::npos) continue;
        const std::string attributes = sysfs_folder(name) + "/gid_attrs/";
        table.push_back({*index, address, read_line(fmt::format("{}types/{}", attributes, entry)),
                         read_line(fmt::format("{}ndevs/{}", attributes, entry))});
    }
    std::ranges::sort(table, {}, &Gid::index);
    return table;
}

namespace {

int preference(const Gid& gid) {
    const bool ipv4 = gid.address.starts_with("0000:0000:0000:0000:0000:ffff:");
    const bool local = gid.address.starts_with("fe80:");
    return (gid.type == "RoCE v2" ? 4 : 0) + (ipv4 ? 2 : local ? 0 : 1);
}

bool is_better(const GidPair& a, const GidPair& b) {
    const auto common = [](const GidPair& pair) {
        return std::ranges::mismatch(pair.own.address, pair.other.address).in1 -
               pair.own.address.begin();
    };
    const auto addresses = [](const GidPair& pair) {
        return std::minmax(pair.own.address, pair.other.address);
    };
    if (preference(a.own) != preference(b.own)) return preference(a.own) > preference(b.own);
    if (common(a) != common(b)) return common(a) > common(b);
    return addresses(a) < addresses(b);
}

}  // namespace

std::optional<GidPair> choose_gids(const std::vector<Gid>& own, const std::vector<Gid>& other) {
    const bool by_hand = own.size() == 1 && other.size() == 1;
    std::optional<GidPair> best;
    for (const Gid& mine : own)
        for (const Gid& theirs : other) {
            if (theirs.type != mine.type) continue;
            if (preference(theirs) != preference(mine) && !by_hand) continue;
            const GidPair pair{mine, theirs};
            if (!best || is_better(pair, *best)) best = pair;  // the first of equal ones
        }
    return best;
}

std::string describe_gids(const std::vector<Gid>& table) {
    std::string text;
    for (const Gid& gid : table)
        text += fmt::format("{}{} is {} ({})", text.empty() ? "" : ", ", gid.index, gid.address,
                            gid.type);
    return text;
}

}  // namespace assay::rdma
