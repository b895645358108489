// Reads the counters of what held this host back (see host_counters.hpp).
#include "core/host_counters.hpp"

#include <linux/gen_stats.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/topology.hpp"
#include "machine/control_groups.hpp"

namespace assay {
namespace {

struct ProtocolCounter {
    std::string_view protocol, name, counter;
};
constexpr std::array protocol_counters = {
    ProtocolCounter{"Udp:", "InDatagrams", "udp.in_datagrams"},
    ProtocolCounter{"Udp:", "InErrors", "udp.in_errors"},
    ProtocolCounter{"Udp:", "RcvbufErrors", "udp.receive_buffer_errors"},
    ProtocolCounter{"Udp:", "SndbufErrors", "udp.send_buffer_errors"},
    ProtocolCounter{"Ip:", "ReasmReqds", "ip.fragments"},
    ProtocolCounter{"Ip:", "ReasmOKs", "ip.reassembled"},
    ProtocolCounter{"Ip:", "ReasmFails", "ip.reassembly_failures"},
    ProtocolCounter{"Ip:", "ReasmTimeout", "ip.reassembly_timeouts"},
    ProtocolCounter{"Ip6", "ReasmReqds", "ip6.fragments"},
    ProtocolCounter{"Ip6", "ReasmOKs", "ip6.reassembled"},
    ProtocolCounter{"Ip6", "ReasmFails", "ip6.reassembly_failures"},
    ProtocolCounter{"Ip6", "ReasmTimeout", "ip6.reassembly_timeouts"},
};
// Counters that grow when all is well: alone they say nothing.
constexpr std::array harmless = {"udp.in_datagrams", "ip.fragments",    "ip.reassembled",
                                 "ip6.fragments",    "ip6.reassembled", "cpu.periods"};

void add_protocol(Counters& counters, std::string_view protocol, std::string_view name,
                  std::uint64_t value) {
    for (const ProtocolCounter& known : protocol_counters)
        if (known.protocol == protocol && known.name == name)
            counters[std::string(known.counter)] = value;
}

// A folder of a control group, and the names of its files by the version of control groups.
struct Group {
    std::string folder;
    bool unified;
};

// The control groups of this process that can have a quota, from its own one to the root.
std::vector<Group> cpu_groups() {
    std::vector<Group> groups;
    const char* root = std::getenv("ASSAY_ROOT");
    for_each_group(
        root ? root : "", "cpu",
        [](void* data, const char* folder, bool is_unified) {
            static_cast<std::vector<Group>*>(data)->push_back({folder, is_unified});
        },
        &groups);
    return groups;
}

// Of all groups the one whose quota took effect most often: those above it count the same periods.
void read_cpu(Counters& counters) {
    for (const Group& group : cpu_groups()) {
        std::ifstream file(group.folder + "/cpu.stat");
        std::map<std::string, std::uint64_t> values;
        std::string name;
        for (std::uint64_t value; file >> name >> value;) values[name] = value;
        if (!values.contains("nr_throttled") ||
            (counters.contains("cpu.periods") &&
             values["nr_throttled"] <= counters["cpu.throttled_periods"]))
            continue;
        counters["cpu.throttled_periods"] = values["nr_throttled"];
        counters["cpu.periods"] = values["nr_periods"];
        counters["cpu.throttled_us"] =
            group.unified ? values["throttled_usec"] : values["throttled_time"] / 1000;
    }
}

struct Quota {
    double processors, period_s;
};

// The lowest quota of the control groups.
std::optional<Quota> cpu_quota() {
    std::optional<Quota> lowest;
    for (const Group& group : cpu_groups()) {
        double quota = 0, period = 0;
        std::istringstream text(group.unified
                                    ? read_line(group.folder + "/cpu.max")
                                    : read_line(group.folder + "/cpu.cfs_quota_us") + " " +
                                          read_line(group.folder + "/cpu.cfs_period_us"));
        if (text >> quota >> period && quota > 0 && period > 0 &&  // no quota: "max", or -1
            (!lowest || quota / period < lowest->processors))
            lowest = Quota{quota / period, period / 1e6};
    }
    return lowest;
}

// A queue of an interface, as the kernel's traffic control reports it.
struct Queue {
    std::string name;  // "eth0.tbf"
    std::uint64_t dropped = 0, overlimits = 0;
    double rate = 0;  // B/s of a token bucket; 0 for others
};

template <class Each>
void for_each_attribute(const rtattr* attribute, int bytes, Each each) {
    for (; RTA_OK(attribute, bytes); attribute = RTA_NEXT(attribute, bytes))
        each(attribute->rta_type & NLA_TYPE_MASK, attribute, RTA_DATA(attribute),
             static_cast<int>(RTA_PAYLOAD(attribute)));
}

Queue read_queue(const nlmsghdr* header) {
    const auto* message = static_cast<const tcmsg*>(NLMSG_DATA(header));
    std::array<char, IF_NAMESIZE> interface{};
    Queue queue;
    if (!if_indextoname(static_cast<unsigned>(message->tcm_ifindex), interface.data()))
        return queue;
    std::string kind;
    const auto* first = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(message) +
                                                        NLMSG_ALIGN(sizeof *message));
    const int bytes =
        static_cast<int>(header->nlmsg_len) - static_cast<int>(NLMSG_LENGTH(sizeof *message));
    for_each_attribute(first, bytes, [&](int type, const rtattr*, const void* data, int size) {
        const auto* nested = static_cast<const rtattr*>(data);
        if (type == TCA_KIND) {
            kind.assign(static_cast<const char*>(data),
                        strnlen(static_cast<const char*>(data), static_cast<std::size_t>(size)));
        } else if (type == TCA_STATS2) {
            for_each_attribute(
                nested, size, [&](int part, const rtattr*, const void* stats, int n) {
                    gnet_stats_queue values{};
                    if (part != TCA_STATS_QUEUE || n < static_cast<int>(sizeof values)) return;
                    std::memcpy(&values, stats, sizeof values);
                    queue.dropped = values.drops;
                    queue.overlimits = values.overlimits;
                });
        } else if (type == TCA_OPTIONS && kind == "tbf") {
            for_each_attribute(
                nested, size, [&](int part, const rtattr*, const void* option, int n) {
                    tc_tbf_qopt bucket{};
                    std::uint64_t rate = 0;
                    if (part == TCA_TBF_PARMS && n >= static_cast<int>(sizeof bucket)) {
                        std::memcpy(&bucket, option, sizeof bucket);
                        queue.rate = std::max(queue.rate, static_cast<double>(bucket.rate.rate));
                    } else if (part == TCA_TBF_RATE64 && n >= static_cast<int>(sizeof rate)) {
                        std::memcpy(&rate, option, sizeof rate);
                        queue.rate = static_cast<double>(rate);
                    }
                });
        }
    });
    queue.name = std::string(interface.data()) + "." + kind;
    return queue;
}

// The queues of this network namespace; none where the kernel does not say.
std::vector<Queue> read_queues() {
    std::vector<Queue> queues;
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) return queues;
    struct {
        nlmsghdr header;
        tcmsg message;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = RTM_GETQDISC;
    request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.message.tcm_family = AF_UNSPEC;
    const timeval limit{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::vector<nlmsghdr> buffer((std::size_t{1} << 16) / sizeof(nlmsghdr));
    bool is_over = send(fd, &request, sizeof request, 0) < 0;
    while (!is_over) {
        const ssize_t received = recv(fd, buffer.data(), buffer.size() * sizeof(nlmsghdr), 0);
        if (received <= 0) break;
        auto bytes = static_cast<unsigned>(received);
        for (const nlmsghdr* header = buffer.data(); NLMSG_OK(header, bytes);
             header = NLMSG_NEXT(header, bytes)) {
            is_over |= header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR;
            if (header->nlmsg_type != RTM_NEWQDISC) continue;
            if (Queue queue = read_queue(header); !queue.name.empty())
                queues.push_back(std::move(queue));
        }
    }
    close(fd);
    return queues;
}

}  // namespace

// /proc/net/snmp has two lines per protocol: names, then values; snmp6 a line per counter.
Counters read_protocol_counters() {
    Counters counters;
    std::ifstream file(procfs("net/snmp"));
    for (std::string names, values; std::getline(file, names) && std::getline(file, values);) {
        std::istringstream name_fields(names), value_fields(values);
        std::string protocol, name, skipped;
        name_fields >> protocol;
        value_fields >> skipped;
        for (std::uint64_t value = 0; name_fields >> name;) {
            std::string text;
            if (!(value_fields >> text)) break;
            if (text.find_first_not_of("0123456789") != std::string::npos) continue;  // -1: none
            value = std::stoull(text);
            add_protocol(counters, protocol, name, value);
        }
    }
    std::ifstream snmp6(procfs("net/snmp6"));
    std::string name;
    for (std::uint64_t value = 0; snmp6 >> name >> value;)
        if (name.starts_with("Ip6")) add_protocol(counters, "Ip6", name.substr(3), value);
    return counters;
}

Counters read_host_counters() {
    Counters counters = read_protocol_counters();
    read_cpu(counters);
    for (const Queue& queue : read_queues()) {
        counters["queue." + queue.name + ".dropped"] += queue.dropped;
        counters["queue." + queue.name + ".overlimits"] += queue.overlimits;
    }
    return counters;
}

bool is_harmless(const std::string& counter) {
    return std::ranges::find(harmless, counter) != harmless.end();
}

Counters growth(const Counters& before, const Counters& after) {
    Counters difference;
    for (const auto& [name, value] : after)
        if (const auto earlier = before.find(name);
            earlier != before.end() && value > earlier->second)
            difference[name] = value - earlier->second;
    return difference;
}

Json limit_facts(const Counters& growth) {
    Json facts = Json::object();
    if (std::ranges::all_of(growth, [](const auto& counter) { return is_harmless(counter.first); }))
        return facts;
    for (const auto& [name, value] : growth) facts["grown." + name] = value;
    if (growth.contains("cpu.throttled_periods"))
        if (const auto quota = cpu_quota()) {
            facts["cpu.quota"] = quota->processors;
            facts["cpu.period"] = quota->period_s;
        }
    for (const Queue& queue : read_queues())
        if (queue.rate > 0) facts["queue." + queue.name + ".rate"] = queue.rate;
    return facts;
}

}  // namespace assay
