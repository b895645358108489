// UDP reception, as a data-taking node has to do it: several paced streams into one interface,
// every message accounted for. Two measurements, because each side is a process of its own and is
// also used by hand: first node.udp_receive on the tested machine, then node.udp_send on another,
// with the same host and port.
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"

namespace assay::node {

namespace detail {
void run_udp_receive(const Options&, Bench&);
void run_udp_send(const Options&, Bench&);

// Outside the range from which Linux takes ports by itself (32768 to 60999).
inline constexpr Parameter udp_port{
    "port", Kind::integer, "", "15300", "control goes to this port, data to those that follow it",
    1,      65000};
// With its header an Ethernet jumbo frame carries 9000 bytes; 8900 is what LOFAR's correlator is
// sent.
inline constexpr Parameter udp_size{
    "size", Kind::integer, "B", "8900", "payload of a message; the same on both sides", 64, 65000};
inline constexpr Parameter udp_fragments{
    "fragments", Kind::flag, "", "",
    "go on where the MTU is too small, so that every message is cut up"};

inline constexpr std::array udp_receive_parameters = {
    Parameter{"host", Kind::text, "", "",
              "name or address of the interface of this machine to receive on"},
    udp_port,
    udp_size,
    Parameter{"sockets", Kind::integer, "", "12",
              "sockets, each with a port; streams are dealt out to them", 1, 128},
    Parameter{"threads", Kind::integer, "", "0",
              "threads that receive (0: as many as processors, up to 4)", 0, 64},
    Parameter{"buffer", Kind::integer, "B", "16777216",
              "receive buffer to ask for, for each socket", 4096, 1 << 30},
    Parameter{"wait", Kind::real, "s", "120", "time for which a sender is waited for", 0.1, 86400},
    Parameter{"no_verify", Kind::flag, "", "", "do not compare the payload"},
    udp_fragments,
    realtime_parameter,
};
inline constexpr std::array udp_receive_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "payload received, each message once, first to last arrival"},
    Metric{"loss", "1", Better::lower, "share of the messages sent that did not arrive"},
    Metric{"duplicates", "1", Better::lower, "messages that arrived again, per message sent"},
    Metric{"reordered", "1", Better::lower,
           "share of messages behind a later one of their stream (RFC 4737)"},
    Metric{"corrupted", "1", Better::lower, "messages whose payload was not as sent"},
    Metric{"foreign", "1", Better::lower,
           "datagrams of somebody else: another run's, or none of ours"},
    Metric{"interval_bandwidth", "B/s", Better::higher,
           "payload received in each tenth of a second"},
    Metric{"longest_gap", "s", Better::lower,
           "longest time in which a receiving thread had nothing"},
    Metric{"jitter", "s", Better::lower,
           "variation of the delay at the end, median of the streams (RFC 3550)"},
    Metric{"lost_socket", "1", Better::lower,
           "messages lost for want of room in the socket's buffer"},
    Metric{"lost_softnet", "1", Better::lower,
           "lost in the kernel's queue of a processor (netdev_max_backlog)"},
    Metric{"lost_nic", "1", Better::lower, "lost in the adapter, or refused by its driver"},
    Metric{"lost_reassembly", "1", Better::lower, "cut up on the way, and not made whole again"},
    Metric{"lost_sender", "1", Better::lower, "dropped by the sender's own queue, before the wire"},
    Metric{"lost_unseen", "1", Better::lower,
           "lost without a trace on this host: it never arrived"},
    Metric{"device_counter", "1", Better::lower,
           "a counter of the interface that tells of trouble, and grew"},
};

inline constexpr std::array udp_send_parameters = {
    Parameter{"host", Kind::text, "", "", "the receiver, as it was told to listen"},
    udp_port,
    Parameter{"streams", Kind::integer, "", "12", "streams at once", 1, 128},
    // 750 Mbit/s, and 0.2 % on top: "at least 9.00 Gbit/s received" cannot be shown by offering
    // just that.
    Parameter{"rate", Kind::real, "B/s", "93937500",
              "payload of each stream (default: 751.5 Mbit/s)", 1, 1e12},
    udp_size,
    Parameter{"budget", Kind::real, "s", "20", "time for which is sent", 0.1, 86400},
    Parameter{"threads", Kind::integer, "", "1", "threads that send", 1, 64},
    Parameter{"wait", Kind::real, "s", "5", "time for which the receiver is asked to answer", 0.1,
              3600},
    Parameter{"no_gso", Kind::flag, "", "",
              "hand over every message by itself, without segmentation offload"},
    udp_fragments,
    realtime_parameter,
};
inline constexpr std::array udp_send_metrics = {
    Metric{"bandwidth", "B/s", Better::higher, "payload sent, first to last message"},
    Metric{"offered", "1", Better::higher, "share of the wanted rate that was sent"},
    Metric{"delivered", "1", Better::higher,
           "share of the messages sent that the receiver reports to have"},
    Metric{"dropped", "1", Better::lower, "messages that this host's own queue may have dropped"},
    Metric{"longest_pause", "s", Better::lower,
           "longest time by which a message went out after it was due"},
};
}  // namespace detail

inline constexpr Measurement udp_receive{"node.udp_receive",
                                         Scope::node,
                                         "UDP reception on one interface: speed, loss and where it "
                                         "happened. The sender is started after it.",
                                         detail::udp_receive_parameters,
                                         detail::udp_receive_metrics,
                                         runs_anywhere,
                                         detail::run_udp_receive};

inline constexpr Measurement udp_send{"node.udp_send",
                                      Scope::node,
                                      "Paced UDP streams to a machine where node.udp_receive runs.",
                                      detail::udp_send_parameters,
                                      detail::udp_send_metrics,
                                      runs_anywhere,
                                      detail::run_udp_send};

}  // namespace assay::node
