// RDMA devices as /sys shows them: their ports, addresses (GIDs) and NUMA nodes.
//
// libibverbs has the same information, but /sys needs no library, and tests replace it by a folder
// (sysfs() in core/topology.hpp). On a host without RDMA the lists are empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace assay::rdma {

struct PortName {
    std::string device;
    int port = 0;  // 0: not given
    std::string text() const { return device + ":" + std::to_string(port); }
};

// Parses "mlx5_0" (port 0) or "mlx5_0:2". Throws Error for other texts.
PortName parse_port_name(const std::string& text);

std::vector<std::string> devices();                 // sorted by name
std::vector<int> ports(const std::string& device);  // ascending, from 1
// Whether the port's state is ACTIVE: its link is up and may carry data.
bool is_active(const PortName&);
// The given port of the given device ("mlx5_0" or "mlx5_0:2"). If `port` is 0, its first active
// port; if `device` is empty too, the first active port of the host. Throws Error if there is no
// such device or port, or it is not active.
PortName find_port(const std::string& device, int port);
// Whether the device is implemented in software (SoftRoCE, siw).
bool is_software_device(const std::string& device);
// The NUMA node of the device; none if it has none (SoftRoCE, a host with one node).
std::optional<int> numa_node(const std::string& device);
// The network interfaces of the port, by name: those of its address table (Ethernet), else those of
// its adapter (IP over InfiniBand). Empty if there is none.
std::vector<std::string> interfaces(const PortName&);

// Bytes that a port has sent and received since it was started, from the adapter's own counters.
// A device without such counters (SoftRoCE) has those of its network interface. None if there is no
// such interface either.
struct PortBytes {
    std::uint64_t sent = 0, received = 0;
};
std::optional<PortBytes> port_bytes(const PortName&);

// An entry of a port's address table.
struct Gid {
    int index = 0;
    std::string address;    // "0000:0000:0000:0000:0000:ffff:0ac8:0001"
    std::string type;       // "RoCE v2", "IB/RoCE v1"
    std::string interface;  // the network interface; empty for InfiniBand
};

// The entries that hold an address, by index.
std::vector<Gid> gids(const PortName&);
// The GIDs that two sides use over Ethernet: of one type, and of one kind of address. The indices
// of the same address type may differ between hosts. RoCE v2 is preferred to v1, because it is
// routable and the usual switch configuration. Within a type, IPv4 is preferred to global IPv6, and
// global IPv6 to link-local; then the addresses that begin alike, as those of one network do. Both
// sides choose the same pair. Of one entry each, chosen by hand, only the type must be the same.
// None if the tables have no such pair.
struct GidPair {
    Gid own, other;
};
std::optional<GidPair> choose_gids(const std::vector<Gid>& own, const std::vector<Gid>& other);
// "0 is fe80:... (RoCE v2), 1 is ..."
std::string describe_gids(const std::vector<Gid>&);

}  // namespace assay::rdma
