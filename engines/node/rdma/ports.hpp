// RDMA devices as /sys shows them: their ports, addresses (GIDs) and NUMA nodes.
//
// libibverbs tells the same, but /sys can be planted in a test, and needs no library.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace assay::rdma {

struct PortName {
    std::string device;
    int port = 0;  // 0: not said
    std::string text() const { return device + ":" + std::to_string(port); }
};

// "mlx5_0" or "mlx5_0:2". Throws Error for what is neither.
PortName parse_port_name(const std::string& text);

std::vector<std::string> devices();
std::vector<int> ports(const std::string& device);
bool active(const PortName&);
// The device and port that are meant: those named, else the first that is active. Throws Error when
// there is no such device or port, or none is active.
PortName find_port(const std::string& device, int port);
// Whether processors do the device's work (SoftRoCE, siw).
bool in_software(const std::string& device);
// The NUMA node of the device; none where it has none (SoftRoCE, one node).
std::optional<int> numa_node(const std::string& device);

// One entry of a port's table of addresses.
struct Gid {
    int index = 0;
    std::string address;    // "0000:0000:0000:0000:0000:ffff:0ac8:0001"
    std::string type;       // "RoCE v2", "IB/RoCE v1"
    std::string interface;  // the network interface; empty for InfiniBand
};

// Without the empty entries.
std::vector<Gid> gids(const PortName&);
// The one to use over Ethernet: RoCE v2 before v1, because it is routed and what switches are set
// up for; then an IPv4 address before a global IPv6 one before a link-local one. None of an empty
// table.
std::optional<Gid> choose_gid(const std::vector<Gid>&);

}  // namespace assay::rdma
