#include "core/facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/topology.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::array table = {
    Fact{"os.name", "", "the distribution"},
    Fact{"kernel.release", "", "as uname -r has it"},
    Fact{"kernel.sched_rt_runtime", "s", "of each period, what real-time threads may take"},
    Fact{"machine.product", "", "as the firmware names it"},
    Fact{"machine.virtual", "",
         "yes where a hypervisor is below; emulated in a guest of the lab, whose timings mean "
         "nothing; simulated in SimGrid"},
    Fact{"cpu.model", "", "of the first package"},
    Fact{"cpu.packages", "1", "sockets"},
    Fact{"cpu.cores", "1", "physical cores that may be used"},
    Fact{"cpu.threads", "1", "hardware threads that may be used"},
    Fact{"cpu.last_level_cache_bytes", "B", "the sum over the host"},
    Fact{"cpu.governor", "", "frequency governor; several, with commas, where processors differ"},
    Fact{"cpu.turbo", "", "on or off"},
    Fact{"memory.bytes", "B", "of the host"},
    Fact{"memory.transparent_huge_pages", "", "always, madvise or never"},
    Fact{"memory.huge_pages", "1", "reserved pages of the default size"},
    Fact{"memory.numa_balancing", "", "on or off: whether the kernel moves pages by itself"},
    Fact{"assay.version", "", "of the engine that read the facts"},
    Fact{"mpi.library", "", "as it names itself"},
    Fact{"mpi.ranks", "", "those that ran on this host"},
    Fact{"numa.nodes", "1", "memory nodes"},
    Fact{"limits.locked_memory", "B", "soft limit of this process; unlimited is 2^63"},
    Fact{"limits.realtime_priority", "1", "the highest that this process may take; 0: none"},
    Fact{"net.core.rmem_max", "B", "largest receive buffer of a socket"},
    Fact{"net.core.rmem_default", "B", "receive buffer of a socket that asks for none"},
    Fact{"net.core.wmem_max", "B", "largest send buffer of a socket"},
    Fact{"net.core.wmem_default", "B", "send buffer of a socket that asks for none"},
    Fact{"net.core.netdev_max_backlog", "1", "packets that may wait for one processor"},
    Fact{"net.ipv4.udp_mem.min", "1", "pages of all UDP sockets below which none is pressed"},
    Fact{"net.ipv4.udp_mem.pressure", "1", "pages from which the kernel saves"},
    Fact{"net.ipv4.udp_mem.max", "1", "pages that all UDP sockets may take"},
    Fact{"interface.mtu", "B", "largest packet of a network interface"},
    Fact{"interface.speed", "B/s", "as negotiated"},
    Fact{"interface.state", "", "up or down"},
    Fact{"interface.driver", "", "the kernel's"},
    Fact{"interface.kind", "", "physical or virtual"},
    Fact{"rdma.state", "", "of a port: ACTIVE, DOWN, ..."},
    Fact{"rdma.rate", "B/s", "of a port, as negotiated"},
    Fact{"rdma.link_layer", "", "InfiniBand or Ethernet"},
    Fact{"rdma.firmware", "", "of the adapter"},
    Fact{"rdma.adapter", "", "GUID of the card: the same for all of its devices and ports"},
    Fact{"rdma.subnet", "", "prefix of an InfiniBand port's subnet"},
    Fact{"pcie.class", "", "network, display, storage or accelerator"},
    Fact{"pcie.speed", "1/s", "transfers a second and lane; an idle GPU lowers it"},
    Fact{"pcie.width", "1", "lanes in use"},
    Fact{"pcie.speed_max", "1/s", "what the device can do"},
    Fact{"pcie.width_max", "1", "lanes that the device has"},
    Fact{"pcie.slot_speed_max", "1/s", "what the port above it can do"},
    Fact{"pcie.slot_width_max", "1", "lanes of the port above it"},
    Fact{"pcie.share", "1", "of the bandwidth that device and slot could agree on"},
    Fact{"pcie.device_share", "1",
         "of the bandwidth that the device alone could use: below 1 in too small a slot"},
    Fact{"device.pci", "", "PCI address that an interface or RDMA device lies on"},
};

// "18446744073709551615" and other texts that are no number are nothing.
std::optional<double> number(const std::string& text) {
    std::istringstream in(text);
    double value = 0;
    return in >> value ? std::optional(value) : std::nullopt;
}

void put(Json& facts, const char* name, const std::string& text) {
    if (!text.empty()) facts[name] = text;
}

// A count: whole numbers stay whole in the record.
void put_number(Json& facts, const char* name, std::optional<double> value, double scale = 1) {
    if (!value) return;
    const double scaled = *value * scale;
    if (scaled == static_cast<double>(static_cast<std::int64_t>(scaled)) && std::abs(scaled) < 9e15)
        facts[name] = static_cast<std::int64_t>(scaled);
    else facts[name] = scaled;
}

std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
}

// The last part of where a link leads ("../../bus/pci/drivers/ixgbe" is "ixgbe"); empty for no
// link.
std::string link_name(const std::string& path) {
    std::error_code none;
    return fs::read_symlink(path, none).filename();
}

// ---- the host

std::string governors() {
    std::set<std::string> found;
    const std::string folder = sysfs("devices/system/cpu");
    for (const std::string& cpu : entries(folder))
        if (cpu.starts_with("cpu") && cpu.size() > 3 &&
            std::isdigit(static_cast<unsigned char>(cpu[3])))
            if (const auto one = read_line(folder + "/" + cpu + "/cpufreq/scaling_governor");
                !one.empty())
                found.insert(one);
    std::string joined;
    for (const auto& one : found) joined += (joined.empty() ? "" : ", ") + one;
    return joined;
}

std::string turbo() {
    const auto off = read_line(sysfs("devices/system/cpu/intel_pstate/no_turbo"));
    if (!off.empty()) return off == "1" ? "off" : "on";
    const auto boost = read_line(sysfs("devices/system/cpu/cpufreq/boost"));
    return boost.empty() ? "" : boost == "0" ? "off" : "on";
}

// The chosen word of "always [madvise] never".
std::string chosen(const std::string& line) {
    const auto open = line.find('['), close = line.find(']');
    return open == std::string::npos || close == std::string::npos
               ? ""
               : line.substr(open + 1, close - open - 1);
}

bool is_virtual() {
    std::ifstream file(procfs("cpuinfo"));
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("flags"))
            return (line + " ").find(" hypervisor ") != std::string::npos;
    return false;
}

// The soft limit of a line of /proc/self/limits.
std::optional<double> soft_limit(const std::string& name) {
    std::ifstream file(procfs("self/limits"));
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name)) {
            const std::string rest = line.substr(name.size());
            return rest.find_first_not_of(' ') == rest.find("unlimited")
                       ? std::optional(9223372036854775808.0)
                       : number(rest);
        }
    return std::nullopt;
}

void put_udp_memory(Json& facts) {
    std::istringstream in(read_line(procfs("sys/net/ipv4/udp_mem")));
    for (const char* name :
         {"net.ipv4.udp_mem.min", "net.ipv4.udp_mem.pressure", "net.ipv4.udp_mem.max"}) {
        double pages = 0;
        if (in >> pages) put_number(facts, name, pages);
    }
}

// ---- devices

std::optional<int> numa_of(const std::string& device_folder) {
    const auto node = number(read_line(device_folder + "/numa_node"));
    return node && *node >= 0 ? std::optional(static_cast<int>(*node)) : std::nullopt;
}

// Where the kernel keeps the device behind an entry of a class: only PCI addresses are told.
std::string pci_of(const std::string& entry) {
    const std::string name = link_name(entry + "/device");
    return std::count(name.begin(), name.end(), ':') == 2 ? name : "";
}

Context interface(const std::string& name) {
    const std::string folder = sysfs("class/net/" + name);
    Context context{{.host = host_name(), .device = name, .numa = numa_of(folder + "/device")},
                    Json::object()};
    Json& facts = context.facts;
    put_number(facts, "interface.mtu", number(read_line(folder + "/mtu")));
    // In Mbit/s; -1, or an error on reading, where nothing is negotiated.
    if (const auto speed = number(read_line(folder + "/speed")); speed && *speed > 0)
        put_number(facts, "interface.speed", speed, 1e6 / 8);
    put(facts, "interface.state", read_line(folder + "/operstate"));
    put(facts, "interface.driver", link_name(folder + "/device/driver"));
    facts["interface.kind"] = fs::exists(folder + "/device") ? "physical" : "virtual";
    put(facts, "device.pci", pci_of(folder));
    return context;
}

// "4: ACTIVE" is "ACTIVE".
std::string after_colon(const std::string& line) {
    const auto at = line.find(": ");
    return at == std::string::npos ? line : line.substr(at + 2);
}

Context rdma_port(const std::string& device, const std::string& port) {
    const std::string folder = sysfs("class/infiniband/" + device), at = folder + "/ports/" + port;
    Context context{
        {.host = host_name(), .device = device + ":" + port, .numa = numa_of(folder + "/device")},
        Json::object()};
    Json& facts = context.facts;
    put(facts, "rdma.state", after_colon(read_line(at + "/state")));
    put_number(facts, "rdma.rate", number(read_line(at + "/rate")),
               1e9 / 8);  // "100 Gb/sec (4X EDR)"
    put(facts, "rdma.link_layer", read_line(at + "/link_layer"));
    put(facts, "rdma.firmware", read_line(folder + "/fw_ver"));
    put(facts, "rdma.adapter", read_line(folder + "/sys_image_guid"));
    if (facts.value("rdma.link_layer", "") == "InfiniBand")
        put(facts, "rdma.subnet", read_line(at + "/gids/0").substr(0, 19));
    put(facts, "device.pci", pci_of(folder));
    return context;
}

// The classes whose bandwidth matters here, by the first two bytes of the class code (PCI-SIG).
std::string pci_class(const std::string& code) {
    if (code.size() < 6) return "";
    const std::string base = code.substr(2, 2), both = code.substr(2, 4);
    if (base == "02") return "network";
    if (base == "03") return "display";
    if (both == "0108") return "storage";
    if (base == "12") return "accelerator";
    if (both == "0c06") return "network";  // InfiniBand as a serial bus
    return "";
}

// Bits a second and lane that carry data, of a link of that many transfers: 8b/10b up to 5 GT/s,
// then 128b/130b (PCI Express base specification).
double lane_rate(double transfers) {
    return transfers <= 5e9 ? transfers * 0.8 : transfers * 128 / 130;
}

struct Link {
    std::optional<double> speed, width;  // transfers a second; lanes
    double rate() const { return speed && width ? lane_rate(*speed) * *width : 0; }
};

Link link(const std::string& folder, const char* which) {
    Link found{number(read_line(folder + "/" + which + "_link_speed")),
               number(read_line(folder + "/" + which + "_link_width"))};
    if (found.speed) *found.speed *= 1e9;  // "8.0 GT/s PCIe"
    if (found.width && (*found.width <= 0 || *found.width > 64))
        found.width.reset();  // 0, 255: no link
    return found;
}

std::optional<Context> pci_device(const std::string& address) {
    std::error_code none;
    const std::string entry = sysfs("bus/pci/devices/" + address);
    const std::string kind = pci_class(read_line(entry + "/class"));
    if (kind.empty()) return std::nullopt;
    const Link now = link(entry, "current"), device = link(entry, "max");
    if (now.rate() == 0) return std::nullopt;
    // The port above: the folder that holds this device's own.
    const fs::path real = fs::canonical(entry, none);
    const Link slot = none ? Link{} : link(real.parent_path(), "max");
    Context context{{.host = host_name(), .device = address, .numa = numa_of(entry)},
                    Json::object()};
    Json& facts = context.facts;
    facts["pcie.class"] = kind;
    put_number(facts, "pcie.speed", now.speed);
    put_number(facts, "pcie.width", now.width);
    put_number(facts, "pcie.speed_max", device.speed);
    put_number(facts, "pcie.width_max", device.width);
    put_number(facts, "pcie.slot_speed_max", slot.speed);
    put_number(facts, "pcie.slot_width_max", slot.width);
    if (device.rate() > 0) {
        facts["pcie.device_share"] = now.rate() / device.rate();
        Link agreed = device;
        if (slot.speed) agreed.speed = std::min(*device.speed, *slot.speed);
        if (slot.width) agreed.width = std::min(*device.width, *slot.width);
        facts["pcie.share"] = now.rate() / agreed.rate();
    }
    return context;
}

Json host_settings() {
    Json facts = Json::object();
    put(facts, "cpu.governor", governors());
    put(facts, "cpu.turbo", turbo());
    put(facts, "memory.transparent_huge_pages",
        chosen(read_line(sysfs("kernel/mm/transparent_hugepage/enabled"))));
    put_number(facts, "memory.huge_pages", number(read_line(procfs("sys/vm/nr_hugepages"))));
    if (const auto balancing = read_line(procfs("sys/kernel/numa_balancing")); !balancing.empty())
        facts["memory.numa_balancing"] = balancing == "0" ? "off" : "on";
    put_number(facts, "limits.locked_memory", soft_limit("Max locked memory"));
    put_number(facts, "limits.realtime_priority", soft_limit("Max realtime priority"));
    put_number(facts, "kernel.sched_rt_runtime",
               number(read_line(procfs("sys/kernel/sched_rt_runtime_us"))), 1e-6);
    for (const char* name :
         {"rmem_max", "rmem_default", "wmem_max", "wmem_default", "netdev_max_backlog"})
        put_number(facts, (std::string("net.core.") + name).c_str(),
                   number(read_line(procfs(std::string("sys/net/core/") + name))));
    put_udp_memory(facts);
    put(facts, "machine.product", read_line(sysfs("class/dmi/id/product_name")));
    // The lab's guests say of themselves that no figure of theirs is a performance.
    facts["machine.virtual"] = std::getenv("ASSAY_GUEST") != nullptr ? "emulated"
                               : is_virtual()                        ? "yes"
                                                                     : "no";
    return facts;
}

}  // namespace

std::span<const Fact> known_facts() { return table; }

std::vector<Context> contexts() {
    std::vector<Context> contexts = {{{.host = host_name()}, host_facts()}};
    contexts.front().facts.update(host_settings());
    for (const std::string& name : entries(sysfs("class/net")))
        if (name != "lo" && fs::exists(sysfs("class/net/" + name + "/mtu")))
            contexts.push_back(interface(name));
    for (const std::string& device : entries(sysfs("class/infiniband")))
        for (const std::string& port : entries(sysfs("class/infiniband/" + device + "/ports")))
            contexts.push_back(rdma_port(device, port));
    for (const std::string& address : entries(sysfs("bus/pci/devices")))
        if (auto context = pci_device(address)) contexts.push_back(std::move(*context));
    return contexts;
}

double pcie_rate(const std::string& address) {
    return link(sysfs("bus/pci/devices/" + address), "current").rate() / 8;
}

}  // namespace assay
