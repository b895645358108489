// Names and addresses of this host, and labels of the ranks of a job.
#include "core/identity.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/topology.hpp"

namespace assay {
namespace {

// The text of an IPv4 or IPv6 address. Empty for other families, and for link-local addresses,
// because hosts on different links may have the same one.
std::string address_text(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET) {
        const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
        inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (address->sa_family == AF_INET6) {
        const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
        if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
            inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
    return text;
}

// Ranks with the same value reach each other without a wire. The kernel's boot id tells machines
// apart, the namespace tells the hosts of a lab, and containers, on one machine apart.
std::string network_identity() {
    std::string boot = read_line(procfs("sys/kernel/random/boot_id"));
    struct stat network{};
    if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return boot;
    return fmt::format("{} {}", boot, network.st_ino);
}

// Addresses of this host's interfaces.
std::vector<std::string> local_addresses() {
    std::vector<std::string> addresses;
    ifaddrs* interfaces = nullptr;
    if (getifaddrs(&interfaces) != 0) return addresses;
    for (const ifaddrs* entry = interfaces; entry; entry = entry->ifa_next) {
        if (!entry->ifa_addr || (entry->ifa_flags & IFF_LOOPBACK)) continue;
        std::string text = address_text(entry->ifa_addr);
        if (!text.empty()) addresses.push_back(std::move(text));
    }
    freeifaddrs(interfaces);
    return addresses;
}

}  // namespace

Identity identify(const std::string& host, bool simulated) {
    if (simulated) return {.host = host, .network = {}, .names = {}, .addresses = {}};
    Identity identity{
        .host = host, .network = network_identity(), .names = {}, .addresses = local_addresses()};
    // Slurm's name of a node may differ from its host name.
    if (const char* node = std::getenv("SLURMD_NODENAME")) identity.names.emplace_back(node);
    return identity;
}

Json to_json(const Identity& identity) {
    return {{"host", identity.host},
            {"network", identity.network},
            {"names", identity.names},
            {"addresses", identity.addresses}};
}

Identity read_identity(const std::string& json) {
    const Json parsed = Json::parse(json);
    return {parsed["host"], parsed["network"], parsed["names"], parsed["addresses"]};
}

void make_unique(std::vector<Identity>& ranks) {
    std::map<std::string, std::vector<std::string>> networks_of_name;
    struct First {
        Identity* rank;
        std::string own_name;
    };
    std::map<std::string, First> first_in_network;
    for (Identity& rank : ranks) {
        rank.host = printable(rank.host);
        for (std::string& name : rank.names) name = printable(name);
        if (!rank.network.empty()) {
            const auto [entry, is_new] =
                first_in_network.try_emplace(rank.network, First{&rank, rank.host});
            const First& first = entry->second;
            if (!is_new) {
                if (rank.host != first.own_name) first.rank->names.push_back(rank.host);
                rank.host = first.rank->host;
                continue;
            }
        }
        std::vector<std::string>& networks = networks_of_name[rank.host];
        const auto same_network = std::ranges::find(networks, rank.network);
        const auto machine_number = same_network - networks.begin() + 1;
        if (same_network == networks.end()) networks.push_back(rank.network);
        if (machine_number > 1) rank.host += fmt::format("~{}", machine_number);
    }
}

std::vector<std::string> rank_labels(const std::vector<std::string>& hosts) {
    std::map<std::string, int> ranks_on, labelled_on;
    for (const std::string& host : hosts) ++ranks_on[host];
    std::vector<std::string> labels;
    labels.reserve(hosts.size());
    for (const std::string& host : hosts)
        labels.push_back(ranks_on[host] == 1 ? host
                                             : fmt::format("{}:{}", host, labelled_on[host]++));
    return labels;
}

void report_ranks(Sink& sink, const std::vector<Identity>& ranks,
                  const std::vector<std::string>& labels) {
    Json hosts = Json::array();
    std::map<std::string, int> index_of_host;
    std::vector<int> host_of_rank;
    host_of_rank.reserve(ranks.size());
    for (const Identity& identity : ranks) {
        const auto [entry, is_new] =
            index_of_host.try_emplace(identity.host, static_cast<int>(index_of_host.size()));
        if (is_new)
            hosts.push_back({{"host", identity.host},
                             {"names", identity.names},
                             {"addresses", identity.addresses}});
        host_of_rank.push_back(entry->second);
    }
    sink.ranks(labels, host_of_rank, hosts);
}

}  // namespace assay
