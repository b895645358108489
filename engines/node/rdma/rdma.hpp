// node.rdma: RDMA bandwidth between two devices or hosts, as perftest's ib_write_bw, ib_read_bw and
// ib_send_bw measure it.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/realtime.hpp"
#include "core/registry.hpp"
#include "node/run_token.hpp"

namespace assay::node {

namespace detail {
void run_rdma(const Options&, Bench&);
std::optional<std::string> rdma_waived();

// The defaults of sizes, iterations, depth, queue pairs and control port are perftest's.
inline constexpr std::array rdma_parameters = {
    Parameter{"device", Kind::text, "", "",
              "RDMA device, such as mlx5_0 or mlx5_0:1 (default: the first with an active port)"},
    Parameter{"port_number", Kind::integer, "", "0", "port of the device (0: its first active one)",
              0, 255},
    Parameter{"peer", Kind::text, "", "",
              "host of the listening side; without it, this is the listening side"},
    Parameter{
        "listen", Kind::text, "", "",
        "interface, address or name of this host that the listening side listens on (default: "
        "the device's network interface)"},
    Parameter{"port", Kind::integer, "", "18515", "TCP port of the control connection", 1, 65535},
    Parameter{"op", Kind::text, "", "write", "write, read, send; a comma-separated list"},
    Parameter{"sizes", Kind::integers, "B", "65536", "message sizes", 1, 1 << 30},
    Parameter{"iterations", Kind::integer, "", "5000", "messages per queue pair in each repetition",
              1, 1e8},
    Parameter{"repeats", Kind::integer, "", "3", "repetitions; the median is reported", 1, 1e4},
    Parameter{"depth", Kind::integer, "", "128", "most messages posted to a queue pair", 1, 32768},
    Parameter{"qps", Kind::integer, "", "1", "queue pairs", 1, 1024},
    Parameter{"cq_mod", Kind::integer, "", "0",
              "messages per signalled completion (0: 100, and 1 above 8 KiB)", 0, 32768},
    Parameter{"bidirectional", Kind::flag, "", "",
              "both sides post at once; values are the sum of both directions"},
    Parameter{"gid_index", Kind::integer, "", "-1",
              "index of the port's address (-1: preferably RoCE v2 over IPv4; the LID over "
              "InfiniBand)",
              -1, 255},
    Parameter{"mtu", Kind::integer, "B", "0", "path MTU (0: the smaller active MTU of both ports)",
              0, 4096},
    Parameter{"service_level", Kind::integer, "", "0", "InfiniBand service level", 0, 15},
    Parameter{"traffic_class", Kind::integer, "", "0", "traffic class over Ethernet (DSCP * 4)", 0,
              255},
    token_parameter,
    Parameter{"wait", Kind::real, "s", "60", "longest wait of the listening side for the other one",
              1, 86400},
    Parameter{"timeout", Kind::real, "s", "20",
              "longest time without a message of the other side, or without a completion", 1, 3600},
    Parameter{"mute", Kind::flag, "", "",
              "write no records but the count of this port's own bytes; the other side writes the "
              "rest to the same run"},
    realtime_parameter,
};
inline constexpr std::array rdma_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "average: all messages over the time from the first post to the last completion"},
    Metric{"peak", "B/s", Better::higher,
           "highest rate of a window from the posting of a message to the completion of it or a "
           "later one"},
    Metric{"message_rate", "1/s", Better::higher, "average messages per second"},
    Metric{"corrupted", "1", Better::lower,
           "messages that arrived wrong, of those verified outside the timed part"},
    Metric{"wire", "1", Better::higher,
           "bytes that the port itself counted (direction: sent, received) over the payload; below "
           "1 something has not left or not reached the adapter"},
};
}  // namespace detail

inline constexpr Measurement rdma{"node.rdma",
                                  Scope::node,
                                  "RDMA write, read or send between two devices or hosts (reliable "
                                  "connections, as perftest's ib_write_bw).",
                                  detail::rdma_parameters,
                                  detail::rdma_metrics,
                                  detail::rdma_waived,
                                  detail::run_rdma};

}  // namespace assay::node
