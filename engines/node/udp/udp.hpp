// UDP reception as on a data-acquisition node: several paced streams into one interface, with every
// message accounted for. There are two measurements, one for each side: start node.udp_receive on
// the tested machine, then node.udp_send on another with the same host and port.
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"
#include "node/run_token.hpp"

namespace assay::node {

namespace detail {
void run_udp_receive(const Options&, Bench&);
void run_udp_send(const Options&, Bench&);

// Outside Linux's range of ephemeral ports (32768 to 60999).
inline constexpr Parameter udp_port{
    "port", Kind::integer, "", "15300", "control port; data go to the ports after it", 1, 65000};
// An Ethernet jumbo frame carries 9000 bytes with headers; LOFAR's correlator receives messages of
// 8900 bytes.
inline constexpr Parameter udp_size{
    "size", Kind::integer, "B", "8900", "payload of a message; the same on both sides", 64, 65000};
inline constexpr Parameter udp_fragments{"fragments", Kind::flag, "", "",
                                         "allow fragmented messages if the MTU is too small"};

inline constexpr std::array udp_receive_parameters = {
    Parameter{"host", Kind::text, "", "",
              "name or address of the interface of this machine to receive on"},
    udp_port,
    udp_size,
    Parameter{"sockets", Kind::integer, "", "12",
              "sockets, each with its own port; streams are distributed over them", 1, 128},
    Parameter{"threads", Kind::integer, "", "0",
              "receiving threads (0: the number of processors, at most 4)", 0, 64},
    Parameter{"buffer", Kind::integer, "B", "16777216", "requested receive buffer of each socket",
              4096, 1 << 30},
    token_parameter,
    Parameter{"wait", Kind::real, "s", "120", "longest wait for a sender", 0.1, 86400},
    Parameter{"no_verify", Kind::flag, "", "", "do not compare the payload"},
    udp_fragments,
    realtime_parameter,
};
inline constexpr std::array udp_receive_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "payload received, without duplicates, from first to last arrival"},
    Metric{"loss", "1", Better::lower, "share of the messages sent that did not arrive"},
    Metric{"duplicates", "1", Better::lower, "messages that arrived again, per message sent"},
    Metric{"reordered", "1", Better::lower,
           "share of messages behind a later one of their stream (RFC 4737)"},
    Metric{"corrupted", "1", Better::lower, "messages whose payload was not as sent"},
    Metric{"foreign", "1", Better::lower, "datagrams that are not messages of this run"},
    Metric{"interval_bandwidth", "B/s", Better::higher,
           "payload received in each tenth of a second"},
    Metric{"longest_gap", "s", Better::lower,
           "longest time in which a receiving thread received nothing"},
    Metric{"jitter", "s", Better::lower,
           "interarrival jitter at the end, median of the streams (RFC 3550)"},
    Metric{"lost_socket", "1", Better::lower, "messages lost because the socket's buffer was full"},
    Metric{"lost_softnet", "1", Better::lower,
           "messages lost in a processor's kernel queue (netdev_max_backlog)"},
    Metric{"lost_nic", "1", Better::lower, "messages lost in the adapter or dropped by its driver"},
    Metric{"lost_reassembly", "1", Better::lower, "fragmented messages that were not reassembled"},
    Metric{"lost_sender", "1", Better::lower, "messages dropped by the sender's own queue"},
    Metric{"lost_unattributed", "1", Better::lower,
           "messages lost that no counter of this host shows: they never arrived"},
    Metric{"device_counter", "1", Better::lower,
           "growth of an interface counter that indicates a problem"},
};

inline constexpr std::array udp_send_parameters = {
    Parameter{"host", Kind::text, "", "", "the receiver's --host"},
    udp_port,
    Parameter{"streams", Kind::integer, "", "12", "number of concurrent streams", 1, 128},
    // 750 Mbit/s plus 0.2 %: offering exactly 9.00 Gbit/s could not show "at least 9.00 Gbit/s
    // received".
    Parameter{"rate", Kind::real, "B/s", "93937500",
              "payload rate of each stream (default: 751.5 Mbit/s)", 1, 1e12},
    udp_size,
    Parameter{"budget", Kind::real, "s", "20", "sending time", 0.1, 86400},
    Parameter{"threads", Kind::integer, "", "1", "sending threads", 1, 64},
    token_parameter,
    Parameter{"wait", Kind::real, "s", "5", "longest wait for the receiver's answer", 0.1, 3600},
    Parameter{"no_gso", Kind::flag, "", "",
              "pass each message to the kernel separately, without segmentation offload"},
    udp_fragments,
    realtime_parameter,
};
inline constexpr std::array udp_send_metrics = {
    Metric{"bandwidth", "B/s", Better::higher, "payload sent, from first to last message"},
    Metric{"offered", "1", Better::higher, "rate that was sent over the requested rate"},
    Metric{"delivered", "1", Better::higher,
           "share of the sent messages that the receiver reports as received"},
    Metric{"dropped", "1", Better::lower,
           "upper bound of messages dropped by this host's own queue"},
    Metric{"longest_pause", "s", Better::lower, "longest delay of a message after it was due"},
};
}  // namespace detail

inline constexpr Measurement udp_receive{"node.udp_receive",
                                         Scope::node,
                                         "UDP reception on one interface: rate, loss and where it "
                                         "happened. Start the sender after it.",
                                         detail::udp_receive_parameters,
                                         detail::udp_receive_metrics,
                                         runs_anywhere,
                                         detail::run_udp_receive};

inline constexpr Measurement udp_send{"node.udp_send",
                                      Scope::node,
                                      "Paced UDP streams to a machine that runs node.udp_receive.",
                                      detail::udp_send_parameters,
                                      detail::udp_send_metrics,
                                      runs_anywhere,
                                      detail::run_udp_send};

}  // namespace assay::node
