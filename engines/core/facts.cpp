// The table of known facts, and their values on this host from /proc and /sys.
#include "core/facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/ethtool.hpp"
#include "core/memory_modules.hpp"
#include "core/topology.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::array fact_table = {
    Fact{"os.name", "", "the distribution"},
    Fact{"kernel.release", "", "as printed by uname -r"},
    Fact{"kernel.sched_rt_runtime", "s", "time that real-time threads may use in each period"},
    Fact{"machine.product", "", "product name given by the firmware"},
    Fact{"machine.virtual", "",
         "yes under a hypervisor; emulated in a guest of the lab, whose timings are not "
         "meaningful; simulated in SimGrid; else no"},
    Fact{"cpu.model", "", "model name of the first package"},
    Fact{"cpu.packages", "1", "sockets"},
    Fact{"cpu.cores", "1", "physical cores that this process may use"},
    Fact{"cpu.threads", "1", "hardware threads that this process may use"},
    Fact{"cpu.last_level_cache_bytes", "B", "sum over the host"},
    Fact{"cpu.governor", "", "frequency governor; a comma-separated list where processors differ"},
    Fact{"cpu.turbo", "", "on or off"},
    Fact{"memory.bytes", "B", "memory of the host"},
    Fact{"memory.modules", "1", "memory modules, as the firmware counts them"},
    Fact{"memory.channels", "1",
         "memory channels with a module, as the kernel or the firmware names them"},
    Fact{"memory.transfer_rate", "1/s",
         "transfers of a channel, configured, of the slowest module"},
    Fact{"memory.transfer_width", "B", "bytes of a transfer, of the narrowest module"},
    Fact{"memory.transparent_huge_pages", "", "always, madvise or never"},
    Fact{"memory.huge_pages", "1", "reserved pages of the default size"},
    Fact{"memory.numa_balancing", "", "on or off: whether the kernel migrates pages between nodes"},
    Fact{"assay.version", "", "version of the engine that read the facts"},
    Fact{"mpi.library", "", "name and version that the library reports"},
    Fact{"mpi.ranks", "", "ranks that ran on this host"},
    Fact{"numa.nodes", "1", "memory nodes"},
    Fact{"numa.cores_without_memory", "1", "cores whose node has no memory"},
    Fact{"numa.nearest_memory", "", "the nodes of such cores, and of the memory nearest to them"},
    Fact{"numa.cores_across_nodes", "1", "cores whose hardware threads are in several nodes"},
    Fact{"limits.locked_memory", "B", "soft limit of this process; unlimited is 2^63"},
    Fact{"limits.realtime_priority", "1", "highest priority that this process may use; 0: none"},
    Fact{"net.core.rmem_max", "B", "largest receive buffer of a socket"},
    Fact{"net.core.rmem_default", "B", "default receive buffer of a socket"},
    Fact{"net.core.wmem_max", "B", "largest send buffer of a socket"},
    Fact{"net.core.wmem_default", "B", "default send buffer of a socket"},
    Fact{"net.core.netdev_max_backlog", "1", "packets that may queue for one processor"},
    Fact{"net.ipv4.udp_mem.min", "1",
         "pages of all UDP sockets below which the kernel reclaims nothing"},
    Fact{"net.ipv4.udp_mem.pressure", "1", "pages from which the kernel limits UDP memory"},
    Fact{"net.ipv4.udp_mem.max", "1", "pages that all UDP sockets may use"},
    Fact{"interface.mtu", "B", "largest packet of the interface"},
    Fact{"interface.speed", "B/s", "negotiated speed"},
    Fact{"interface.speed_max", "B/s", "fastest speed that the adapter supports"},
    Fact{"interface.duplex", "", "full or half"},
    Fact{"interface.state", "", "up or down"},
    Fact{"interface.driver", "", "kernel driver"},
    Fact{"interface.kind", "", "physical or virtual"},
    Fact{"interface.link_layer", "", "Ethernet, InfiniBand, wireless or other"},
    Fact{"interface.master", "", "the bond or bridge that the interface belongs to"},
    Fact{"rdma.state", "", "state of the port: ACTIVE, DOWN, ..."},
    Fact{"rdma.physical_state", "", "state of the port's link: LinkUp, Polling, Disabled, ..."},
    Fact{"rdma.rate", "B/s", "negotiated rate of the port"},
    Fact{"rdma.link", "", "width and generation of the port's link: 4X EDR"},
    Fact{"rdma.link_layer", "", "InfiniBand or Ethernet"},
    Fact{"rdma.firmware", "", "firmware version of the adapter"},
    Fact{"rdma.adapter", "", "GUID of the card, the same for all its devices and ports"},
    Fact{"rdma.subnet", "", "prefix of an InfiniBand port's subnet"},
    Fact{"pcie.class", "", "network, display, storage or accelerator"},
    Fact{"pcie.vendor", "", "PCI vendor number, such as 10de"},
    Fact{"pcie.speed", "1/s", "transfers per second and lane; an idle GPU lowers it"},
    Fact{"pcie.width", "1", "lanes in use"},
    Fact{"pcie.speed_max", "1/s", "highest speed of the device"},
    Fact{"pcie.width_max", "1", "lanes of the device"},
    Fact{"pcie.slot_speed_max", "1/s", "highest speed of the port above the device"},
    Fact{"pcie.slot_width_max", "1", "lanes of the port above the device"},
    Fact{"pcie.share", "1", "bandwidth over the best that device and slot both support"},
    Fact{"pcie.device_share", "1",
         "bandwidth over the best that the device supports: below 1 in too small a slot"},
    Fact{"device.pci", "", "PCI address of an interface or RDMA device"},
    Fact{"gpu.driver", "", "version of NVIDIA's kernel module"},
    Fact{"gpu.visible_devices", "", "CUDA_VISIBLE_DEVICES, where it is set: other GPUs are hidden"},
};

// The number at the start of a text; none when there is no number.
std::optional<double> leading_number(const std::string& text) {
    std::istringstream in(text);
    double value = 0;
    return in >> value ? std::optional(value) : std::nullopt;
}

void set_text(Json& facts, const char* name, const std::string& text) {
    if (!text.empty()) facts[name] = text;
}

// Sets value * scale, as an integer if it is one.
void set_number(Json& facts, const char* name, std::optional<double> value, double scale = 1) {
    if (!value) return;
    const double scaled = *value * scale;
    if (scaled == static_cast<double>(static_cast<std::int64_t>(scaled)) && std::abs(scaled) < 9e15)
        facts[name] = static_cast<std::int64_t>(scaled);
    else facts[name] = scaled;
}

// The last part of a symbolic link's target ("../../bus/pci/drivers/ixgbe" gives "ixgbe"); empty
// when the path is not a link.
std::string link_name(const std::string& path) {
    std::error_code ignored;
    return fs::read_symlink(path, ignored).filename();
}

// ---- the host

// The frequency governors of all processors, without repetition: "performance, powersave".
std::string governors() {
    std::set<std::string> names;
    const std::string folder = sysfs("devices/system/cpu");
    for (const std::string& cpu : entries(folder))
        if (cpu.starts_with("cpu") && cpu.size() > 3 &&
            std::isdigit(static_cast<unsigned char>(cpu[3])))
            if (const auto name =
                    read_line(fmt::format("{}/{}/cpufreq/scaling_governor", folder, cpu));
                !name.empty())
                names.insert(name);
    std::string joined;
    for (const auto& name : names) joined += (joined.empty() ? "" : ", ") + name;
    return joined;
}

std::string turbo() {
    const auto off = read_line(sysfs("devices/system/cpu/intel_pstate/no_turbo"));
    if (!off.empty()) return off == "1" ? "off" : "on";
    const auto boost = read_line(sysfs("devices/system/cpu/cpufreq/boost"));
    return boost.empty() ? "" : boost == "0" ? "off" : "on";
}

// The selected choice: "always [madvise] never" gives "madvise".
std::string selected_choice(const std::string& line) {
    const auto open = line.find('['), close = line.find(']');
    return open == std::string::npos || close == std::string::npos
               ? ""
               : line.substr(open + 1, close - open - 1);
}

// Whether the processor reports that it runs under a hypervisor.
bool is_virtual() {
    std::ifstream file(procfs("cpuinfo"));
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("flags"))
            return (line + " ").find(" hypervisor ") != std::string::npos;
    return false;
}

// A soft limit from /proc/self/limits; "unlimited" is 2^63.
std::optional<double> soft_limit(const std::string& name) {
    std::ifstream file(procfs("self/limits"));
    for (std::string line; std::getline(file, line);)
        if (line.starts_with(name)) {
            const std::string rest = line.substr(name.size());
            return rest.find_first_not_of(' ') == rest.find("unlimited")
                       ? std::optional(9223372036854775808.0)
                       : leading_number(rest);
        }
    return std::nullopt;
}

void set_udp_memory(Json& facts) {
    std::istringstream in(read_line(procfs("sys/net/ipv4/udp_mem")));
    for (const char* name :
         {"net.ipv4.udp_mem.min", "net.ipv4.udp_mem.pressure", "net.ipv4.udp_mem.max"}) {
        double pages = 0;
        if (in >> pages) set_number(facts, name, pages);
    }
}

// ---- devices

std::optional<int> numa_node_of(const std::string& device_folder) {
    const auto node = leading_number(read_line(device_folder + "/numa_node"));
    return node && *node >= 0 ? std::optional(static_cast<int>(*node)) : std::nullopt;
}

// The PCI address of the device behind an entry of a class; empty for other buses.
std::string pci_address_of(const std::string& entry) {
    const std::string name = link_name(entry + "/device");
    return std::count(name.begin(), name.end(), ':') == 2 ? name : "";
}

// By the kernel's number of the link layer (linux/if_arp.h).
std::string link_layer(const std::string& folder) {
    const std::string type = read_line(folder + "/type");
    if (type == "32") return "InfiniBand";
    if (type != "1" && !type.empty()) return "other";
    return fs::exists(folder + "/phy80211") || fs::exists(folder + "/wireless") ? "wireless"
                                                                                : "Ethernet";
}

Context interface_context(const std::string& name) {
    const std::string folder = sysfs("class/net/" + name);
    Context context{{.host = host_name(), .device = name, .numa = numa_node_of(folder + "/device")},
                    Json::object()};
    Json& facts = context.facts;
    set_number(facts, "interface.mtu", leading_number(read_line(folder + "/mtu")));
    // In Mbit/s; -1 or a read error without a negotiated speed.
    if (const auto speed = leading_number(read_line(folder + "/speed")); speed && *speed > 0)
        set_number(facts, "interface.speed", speed, 1e6 / 8);
    set_number(facts, "interface.speed_max", fastest_link_mode(name), 1.0 / 8);
    if (const auto duplex = read_line(folder + "/duplex"); duplex != "unknown")
        set_text(facts, "interface.duplex", duplex);
    set_text(facts, "interface.state", read_line(folder + "/operstate"));
    set_text(facts, "interface.driver", link_name(folder + "/device/driver"));
    facts["interface.kind"] = fs::exists(folder + "/device") ? "physical" : "virtual";
    facts["interface.link_layer"] = link_layer(folder);
    set_text(facts, "interface.master", link_name(folder + "/master"));
    set_text(facts, "device.pci", pci_address_of(folder));
    return context;
}

// "100 Gb/sec (4X EDR)" gives "4X EDR".
std::string in_brackets(const std::string& line) {
    const auto open = line.find('('), close = line.find(')');
    return open == std::string::npos || close == std::string::npos || close < open
               ? ""
               : line.substr(open + 1, close - open - 1);
}

// "4: ACTIVE" gives "ACTIVE".
std::string after_colon(const std::string& line) {
    const auto colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
}

Context rdma_port_context(const std::string& device, const std::string& port) {
    const std::string folder = sysfs("class/infiniband/" + device),
                      port_folder = folder + "/ports/" + port;
    Context context{{.host = host_name(),
                     .device = device + ":" + port,
                     .numa = numa_node_of(folder + "/device")},
                    Json::object()};
    Json& facts = context.facts;
    set_text(facts, "rdma.state", after_colon(read_line(port_folder + "/state")));
    set_text(facts, "rdma.physical_state", after_colon(read_line(port_folder + "/phys_state")));
    set_number(facts, "rdma.rate", leading_number(read_line(port_folder + "/rate")), 1e9 / 8);
    set_text(facts, "rdma.link", in_brackets(read_line(port_folder + "/rate")));
    set_text(facts, "rdma.link_layer", read_line(port_folder + "/link_layer"));
    set_text(facts, "rdma.firmware", read_line(folder + "/fw_ver"));
    set_text(facts, "rdma.adapter", read_line(folder + "/sys_image_guid"));
    if (facts.value("rdma.link_layer", "") == "InfiniBand")
        set_text(facts, "rdma.subnet", read_line(port_folder + "/gids/0").substr(0, 19));
    set_text(facts, "device.pci", pci_address_of(folder));
    return context;
}

// The device classes that are reported, by the first two bytes of the class code (PCI-SIG).
std::string pci_class(const std::string& code) {
    if (code.size() < 6) return "";
    const std::string base = code.substr(2, 2), class_code = code.substr(2, 4);
    if (base == "02") return "network";
    if (base == "03") return "display";
    if (class_code == "0108") return "storage";
    if (base == "12") return "accelerator";
    if (class_code == "0c06") return "network";  // InfiniBand as a serial bus
    return "";
}

// Data bits per second of one lane at `transfers` per second: 8b/10b up to 5 GT/s, then 128b/130b
// (PCI Express base specification).
double lane_rate(double transfers) {
    return transfers <= 5e9 ? transfers * 0.8 : transfers * 128 / 130;
}

// A PCIe link.
struct Link {
    std::optional<double> speed, width;  // transfers per second; lanes
    // bit/s in one direction; 0 if unknown.
    double rate() const { return speed && width ? lane_rate(*speed) * *width : 0; }
};

// `prefix`: "current" or "max", of the files of a PCI device in /sys.
Link read_link(const std::string& folder, const char* prefix) {
    Link link{leading_number(read_line(folder + "/" + prefix + "_link_speed")),
              leading_number(read_line(folder + "/" + prefix + "_link_width"))};
    if (link.speed) *link.speed *= 1e9;  // "8.0 GT/s PCIe"
    if (link.width && (*link.width <= 0 || *link.width > 64))
        link.width.reset();  // 0, 255: no link
    return link;
}

std::optional<Context> pci_device_context(const std::string& address) {
    std::error_code ignored;
    const std::string entry = sysfs("bus/pci/devices/" + address);
    const std::string kind = pci_class(read_line(entry + "/class"));
    if (kind.empty()) return std::nullopt;
    const std::string vendor = read_line(entry + "/vendor");  // "0x10de"
    const Link current = read_link(entry, "current"), device = read_link(entry, "max");
    // A GPU is reported even if its link is lost or not shown, as in some guests.
    const bool is_gpu = vendor == "0x10de" && (kind == "display" || kind == "accelerator");
    if (current.rate() == 0 && !is_gpu) return std::nullopt;
    // The port above the device is the parent folder of the device's own.
    const fs::path real = fs::canonical(entry, ignored);
    const Link slot = ignored ? Link{} : read_link(real.parent_path(), "max");
    Context context{{.host = host_name(), .device = address, .numa = numa_node_of(entry)},
                    Json::object()};
    Json& facts = context.facts;
    facts["pcie.class"] = kind;
    if (vendor.starts_with("0x")) set_text(facts, "pcie.vendor", vendor.substr(2));
    set_number(facts, "pcie.speed", current.speed);
    set_number(facts, "pcie.width", current.width);
    set_number(facts, "pcie.speed_max", device.speed);
    set_number(facts, "pcie.width_max", device.width);
    set_number(facts, "pcie.slot_speed_max", slot.speed);
    set_number(facts, "pcie.slot_width_max", slot.width);
    if (current.rate() > 0 && device.rate() > 0) {
        facts["pcie.device_share"] = current.rate() / device.rate();
        Link agreed = device;
        if (slot.speed) agreed.speed = std::min(*device.speed, *slot.speed);
        if (slot.width) agreed.width = std::min(*device.width, *slot.width);
        facts["pcie.share"] = current.rate() / agreed.rate();
    }
    return context;
}

Json host_settings() {
    Json facts = Json::object();
    if (const auto memory = memory_modules()) {
        facts["memory.modules"] = memory->modules;
        if (memory->channels) facts["memory.channels"] = *memory->channels;
        set_number(facts, "memory.transfer_rate", memory->transfer_rate);
        set_number(facts, "memory.transfer_width", memory->width);
    }
    set_text(facts, "cpu.governor", governors());
    set_text(facts, "cpu.turbo", turbo());
    set_text(facts, "memory.transparent_huge_pages",
             selected_choice(read_line(sysfs("kernel/mm/transparent_hugepage/enabled"))));
    set_number(facts, "memory.huge_pages",
               leading_number(read_line(procfs("sys/vm/nr_hugepages"))));
    if (const auto balancing = read_line(procfs("sys/kernel/numa_balancing")); !balancing.empty())
        facts["memory.numa_balancing"] = balancing == "0" ? "off" : "on";
    set_number(facts, "limits.locked_memory", soft_limit("Max locked memory"));
    set_number(facts, "limits.realtime_priority", soft_limit("Max realtime priority"));
    set_number(facts, "kernel.sched_rt_runtime",
               leading_number(read_line(procfs("sys/kernel/sched_rt_runtime_us"))), 1e-6);
    for (const char* name :
         {"rmem_max", "rmem_default", "wmem_max", "wmem_default", "netdev_max_backlog"})
        set_number(facts, (std::string("net.core.") + name).c_str(),
                   leading_number(read_line(procfs(std::string("sys/net/core/") + name))));
    set_udp_memory(facts);
    set_text(facts, "machine.product", read_line(sysfs("class/dmi/id/product_name")));
    set_text(facts, "gpu.driver", read_line(sysfs("module/nvidia/version")));
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
        facts["gpu.visible_devices"] = *visible == 0 ? "none" : visible;
    // The lab sets ASSAY_GUEST in its emulated guests.
    facts["machine.virtual"] = std::getenv("ASSAY_GUEST") != nullptr ? "emulated"
                               : is_virtual()                        ? "yes"
                                                                     : "no";
    return facts;
}

}  // namespace

std::span<const Fact> known_facts() { return fact_table; }

std::vector<Context> contexts() {
    std::vector<Context> contexts = {{{.host = host_name()}, host_facts()}};
    contexts.front().facts.update(host_settings());
    for (const std::string& name : entries(sysfs("class/net")))
        if (name != "lo" && fs::exists(sysfs("class/net/" + name + "/mtu")))
            contexts.push_back(interface_context(name));
    for (const std::string& device : entries(sysfs("class/infiniband")))
        for (const std::string& port : entries(sysfs("class/infiniband/" + device + "/ports")))
            contexts.push_back(rdma_port_context(device, port));
    for (const std::string& address : entries(sysfs("bus/pci/devices")))
        if (auto context = pci_device_context(address)) contexts.push_back(std::move(*context));
    return contexts;
}

double pcie_rate(const std::string& address) {
    return read_link(sysfs("bus/pci/devices/" + address), "current").rate() / 8;
}

}  // namespace assay
