// Lists the IPv4 addresses of this node, and chooses one address of each node on a network that all
// nodes share.
#include "storage/accelerator/node_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "storage/store/superblock.hpp"

namespace assay::storage {
namespace {

// A hash of the kernel's boot_id and the network namespace: equal for processes that share a
// network stack.
std::uint64_t identify_machine() {
    const std::string boot = boot_id();
    struct stat status{};
    if (stat("/proc/self/ns/net", &status) != 0 || boot.empty())
        return static_cast<std::uint64_t>(getpid()) << 32 | 1;  // a value that no other node has
    const std::uint64_t parts[2] = {XXH3_64bits(boot.data(), boot.size()), status.st_ino};
    return XXH3_64bits(parts, sizeof parts);
}

// The address of a node in a network; 0 if it has none.
std::uint32_t address_in(const NodeAddresses& node, std::uint32_t network, std::uint32_t mask) {
    for (std::uint32_t k = 0; k < node.count; ++k)
        if (node.entries[k].mask == mask && (node.entries[k].host & mask) == network)
            return node.entries[k].host;
    return 0;
}

// The addresses of all nodes in a network; empty if a node has none, or if two machines have the
// same address.
std::vector<std::uint32_t> addresses_in(const std::vector<NodeAddresses>& nodes,
                                        std::uint32_t network, std::uint32_t mask) {
    std::vector<std::uint32_t> hosts;
    std::map<std::uint32_t, std::uint64_t> machines;
    for (const auto& node : nodes) {
        const std::uint32_t host = address_in(node, network, mask);
        if (!host || machines.emplace(host, node.machine).first->second != node.machine) return {};
        hosts.push_back(host);
    }
    return hosts;
}

}  // namespace

NodeAddresses local_addresses(const std::string& interface) {
    NodeAddresses addresses;
    addresses.machine = identify_machine();
    addresses.interface_is_given = !interface.empty();
    ifaddrs* list = nullptr;
    if (getifaddrs(&list)) return addresses;
    for (const bool loopback : {false, true})
        for (auto* entry = list; entry && addresses.count < NodeAddresses::max_entries;
             entry = entry->ifa_next) {
            if (!entry->ifa_addr || !entry->ifa_netmask || entry->ifa_addr->sa_family != AF_INET ||
                !(entry->ifa_flags & IFF_UP) || bool(entry->ifa_flags & IFF_LOOPBACK) != loopback)
                continue;
            if (interface.empty() ? loopback && addresses.count : interface != entry->ifa_name)
                continue;
            addresses.entries[addresses.count++] = {
                reinterpret_cast<sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr,
                reinterpret_cast<sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr};
        }
    freeifaddrs(list);
    return addresses;
}

std::vector<std::uint32_t> choose_addresses(const std::vector<NodeAddresses>& nodes) {
    if (nodes.empty()) return {};
    const bool one_machine = std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
        return node.machine == nodes[0].machine && !node.interface_is_given;
    });
    if (one_machine) return std::vector<std::uint32_t>(nodes.size(), htonl(INADDR_LOOPBACK));
    for (std::uint32_t k = 0; k < nodes[0].count; ++k) {
        const auto [host, mask] = nodes[0].entries[k];
        if (auto hosts = addresses_in(nodes, host & mask, mask); !hosts.empty()) return hosts;
    }
    std::vector<std::uint32_t> hosts;
    hosts.reserve(nodes.size());
    for (const auto& node : nodes) hosts.push_back(node.count ? node.entries[0].host : 0);
    return hosts;
}

}  // namespace assay::storage
