// Names and addresses of this host, and labels of the ranks of a job.
#include "core/identity.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

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
    if (simulated) return {.host = host, .boot = {}, .names = {}, .addresses = {}};
    Identity identity{.host = host,
                      .boot = read_line(procfs("sys/kernel/random/boot_id")),
                      .names = {},
                      .addresses = local_addresses()};
    // Slurm's name of a node may differ from its host name.
    if (const char* node = std::getenv("SLURMD_NODENAME")) identity.names.emplace_back(node);
    return identity;
}

Json to_json(const Identity& identity) {
    return {{"host", identity.host},
            {"boot", identity.boot},
            {"names", identity.names},
            {"addresses", identity.addresses}};
}

Identity read_identity(const std::string& json) {
    const Json parsed = Json::parse(json);
    return {parsed["host"], parsed["boot"], parsed["names"], parsed["addresses"]};
}

void make_unique(std::vector<Identity>& ranks) {
    std::map<std::string, std::vector<std::string>> boots_of_name;
    for (Identity& rank : ranks) {
        rank.host = printable(rank.host);
        for (std::string& name : rank.names) name = printable(name);
        std::vector<std::string>& boots = boots_of_name[rank.host];
        const auto same_boot = std::ranges::find(boots, rank.boot);
        const auto machine_number = same_boot - boots.begin() + 1;
        if (same_boot == boots.end()) boots.push_back(rank.boot);
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
