// The network measurements: how ranks move bytes between each other. They can be started under any
// MPI launcher:
//
//     mpirun -np 8 assay-probe-openmpi run network.all_to_all --sizes 1024,65536 --op send,put,get
//            --schedule shift --rounds 0 --nflight 1 --budget 20 --confidence 0.05
//     mpirun -np 8 assay-probe-openmpi run network.client_server --servers 2 --op send,put,get
//     mpirun -np 8 assay-probe-openmpi run network.pairs --pairs 0-3,3-0,1-2 --size 1MiB
//            --repeats 5
//     mpirun -np 8 assay-probe-openmpi run network.one_way --size 1MiB --repeats 5
//     mpirun -np 8 assay-probe-openmpi run network.saturation <rounds.jsonl
//
// The first two also write the pair matrix (rows of "bandwidth"), a context for each host, and the
// kernel's port counters: network.counters and network.wire, which cannot be run by themselves.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::network {

namespace detail {

inline std::optional<std::string> recorded_by_others() {
    return "recorded by network.all_to_all, network.client_server and network.saturation";
}
void run_client_server(const Options&, Bench&);
void run_all_to_all(const Options&, Bench&);
void run_pairs(const Options&, Bench&);
void run_one_way(const Options&, Bench&);
void run_saturation(const Options&, Bench&);
inline void run_nothing(const Options&, Bench&) {}

inline constexpr Parameter sizes{
    "sizes", Kind::integers, "B", "", "message sizes; default: 1 B to 4 MiB by powers of two",
    1,       1 << 30};
inline constexpr Parameter op{"op", Kind::text, "", "send",
                              "operations: one or more of send,put,get"};
inline constexpr Parameter nflight{
    "nflight", Kind::integer, "", "1", "messages in flight at one client, over all its servers",
    1,         65536};
inline constexpr Parameter repeats{"repeats",
                                   Kind::integer,
                                   "",
                                   "0",
                                   "messages per peer and size; 0: chosen by budget and confidence",
                                   0,
                                   1e9};
inline constexpr Parameter budget{
    "budget", Kind::real, "s", "60", "time for the whole sweep; 0: no limit", 0, 1e6};
inline constexpr Parameter confidence{"confidence",
                                      Kind::real,
                                      "",
                                      "0.05",
                                      "a size ends when the median's 95 % interval is within "
                                      "this share of it; 0: use the whole budget",
                                      0,
                                      1};
inline constexpr Parameter memory{
    "memory",
    Kind::integer,
    "B",
    "128MiB",
    "memory for messages per rank; more if the messages in flight need it",
    4096,
    1e13};
inline constexpr Parameter timeout{
    "timeout", Kind::real, "s", "30", "longest time without progress, before the job fails",
    0.1,       1e6};
inline constexpr Parameter yield_us{
    "yield_us",
    Kind::integer,
    "us",
    "50",
    "polling without pause, before the processor is yielded; 0 if ranks share cores",
    0,
    1e9};
inline constexpr Parameter no_verify{"no_verify", Kind::flag, "", "",
                                     "do not verify payloads, to measure the cost of verification"};

inline constexpr std::array all_to_all_parameters = {
    sizes,
    op,
    nflight,
    repeats,
    budget,
    confidence,
    Parameter{"schedule", Kind::text, "", "shift",
              "shift, circle (isolated pairs), xor (powers of two), random (a congestion test) or "
              "file"},
    Parameter{"schedule_file", Kind::text, "", "",
              "with schedule file: each line is a step, the destination of each rank, -1 for none"},
    Parameter{"rounds", Kind::integer, "", "0",
              "number of rounds, sampled from all; 0: all that fit the budget, at least 10", 0,
              1e9},
    memory,
    timeout,
    yield_us,
    no_verify,
};
inline constexpr std::array client_server_parameters = {
    Parameter{"servers", Kind::integer, "", "1",
              "number of servers: the first ranks; a server with two adapters counts twice", 1,
              1e7},
    sizes,
    op,
    nflight,
    repeats,
    budget,
    confidence,
    memory,
    timeout,
    yield_us,
    no_verify,
};
inline constexpr std::array pairs_parameters = {
    Parameter{"pairs", Kind::text, "", "", "ordered pairs of ranks, from-to: \"0-3,3-0,1-2\""},
    Parameter{"size", Kind::integer, "B", "1MiB", "bytes per message", 1, 1 << 30},
    Parameter{"repeats", Kind::integer, "", "5", "bursts of each pair", 1, 1e6},
    Parameter{"budget", Kind::real, "s", "0",
              "time for all pairs, shared evenly; each has one burst at least; 0: a second each", 0,
              1e6},
    nflight,
    memory,
    timeout,
    yield_us,
};

inline constexpr std::array one_way_parameters = {
    Parameter{"servers", Kind::integer, "", "0",
              "the first ranks are servers, each paired with clients; 0: all ranks are alike", 0,
              1e7},
    Parameter{"size", Kind::integer, "B", "1MiB", "bytes per message", 1, 1 << 30},
    Parameter{"repeats", Kind::integer, "", "5", "bursts of each pair, as far as time allows", 1,
              1e6},
    Parameter{"budget", Kind::real, "s", "0", "no burst starts after this time; 0: no limit", 0,
              1e6},
    nflight,
    memory,
    timeout,
    yield_us,
};

inline constexpr std::array saturation_parameters = {
    Parameter{"nflight", Kind::integer, "", "2", "messages in flight on each flow", 1, 1024},
    timeout,
    yield_us,
};

inline constexpr std::array sweep_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "verified bytes of all ranks over the time from the first post to the last completion, "
           "summed over the rounds; one sample per pass; "
           "in a pair matrix, of one flow while it had a message in flight"},
    Metric{"client_bandwidth", "B/s", Better::higher,
           "verified bytes of one rank's flows over its own timed part"},
    Metric{"rate", "1/s", Better::higher, "operations of all ranks over the same time"},
    Metric{"latency", "s", Better::lower,
           "of one operation, over all ranks: from posting until it is known to be complete at "
           "the target; of a stream, from a few separate messages in each round"},
    Metric{"half_round_trip", "s", Better::lower,
           "half the time from posting a message to the arrival of its acknowledgement"},
    Metric{"time", "s", Better::none, "timed part of each client, in the order of ranks"},
    Metric{"wall_time", "s", Better::none,
           "from the first post to the last completion, summed over rounds and passes"},
    Metric{"bytes", "B", Better::none, "arrived and verified"},
    Metric{"corrupted", "1", Better::lower, "messages that did not arrive as they were sent"},
};
inline constexpr std::array pairs_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "of the pair alone, timed by the receiver; one sample per burst"},
    Metric{"latency", "s", Better::lower, "half a round trip of 8 bytes, of the pair alone"},
    Metric{"corrupted", "1", Better::lower, "messages that did not arrive as they were sent"},
};
inline constexpr std::array one_way_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "in a pair matrix: of one flow, while its hosts carry nothing in the other direction"},
    Metric{"corrupted", "1", Better::lower, "messages that did not arrive as they were sent"},
};
inline constexpr std::array saturation_metrics = {
    Metric{"rate", "B/s", Better::higher,
           "of each flow of a round, in the time in which all flows ran; of an all-to-all, what "
           "each rank received"},
    Metric{"latency", "s", Better::lower, "half a round trip of one message, of the pair alone"},
    Metric{"send_call", "s", Better::lower,
           "of a call of MPI_Send, whose receive is posted pause_s later"},
    Metric{"isend_call", "s", Better::lower,
           "of a call of MPI_Isend, whose receive is posted pause_s later"},
    Metric{"receive_call", "s", Better::lower,
           "of a call of MPI_Recv, pause_s after its message was sent by MPI_Send"},
};
inline constexpr std::array counters_metrics = {
    Metric{"rx_bytes", "B", Better::none, "received by an interface"},
    Metric{"tx_bytes", "B", Better::none, "sent by an interface"},
    Metric{"rx_errors", "1", Better::lower, "bad packets received"},
    Metric{"tx_errors", "1", Better::lower, "packets that could not be sent"},
    Metric{"rx_dropped", "1", Better::lower, "packets received and dropped"},
    Metric{"tx_dropped", "1", Better::lower, "packets dropped before they were sent"},
    Metric{"port_xmit_data", "B", Better::none, "sent by an InfiniBand port"},
    Metric{"port_rcv_data", "B", Better::none, "received by an InfiniBand port"},
    Metric{"rx_crc_errors", "1", Better::lower, "packets received with a wrong checksum"},
    Metric{"rx_frame_errors", "1", Better::lower, "packets received misaligned"},
    Metric{"rx_missed_errors", "1", Better::lower, "packets missed for want of buffers"},
    Metric{"tx_carrier_errors", "1", Better::lower, "packets lost with the link"},
    Metric{"carrier_changes", "1", Better::lower, "times the link went up or down"},
    Metric{"tcp_sent", "1", Better::none,
           "TCP segments sent by the host; with a peer: those with data, on its connections"},
    Metric{"tcp_retransmitted", "1", Better::lower,
           "TCP segments that the host sent again: lost on their way, or late"},
    Metric{"tcp_received", "1", Better::none, "TCP segments received by the host"},
    Metric{
        "tcp_out_of_order", "1", Better::lower,
        "TCP segments that arrived behind a gap: an earlier one was lost on its way to the host"},
    Metric{"tcp_timeouts", "1", Better::lower, "times TCP waited for an answer in vain"},
    Metric{"symbol_error", "1", Better::lower, "minor link errors: a bad cable or transceiver"},
    Metric{"port_rcv_remote_physical_errors", "1", Better::lower,
           "packets that another port marked as bad"},
    Metric{"local_link_integrity_errors", "1", Better::lower,
           "times the link failed its threshold"},
    Metric{"excessive_buffer_overrun_errors", "1", Better::lower,
           "times the receive buffer overran repeatedly"},
    Metric{"link_downed", "1", Better::lower, "times the link went down"},
    Metric{"link_error_recovery", "1", Better::lower, "times the link recovered from errors"},
    Metric{"port_rcv_errors", "1", Better::lower, "packets received with errors"},
    Metric{"port_xmit_discards", "1", Better::lower, "packets discarded before they were sent"},
    Metric{"port_xmit_wait", "1", Better::lower,
           "ticks with data to send and no credits: congestion"},
};
inline constexpr std::array wire_metrics = {
    Metric{"share", "1", Better::none,
           "bytes that left the host on the wire, over the payload it sent to other hosts; below 1 "
           "MPI did not send all of it through the ports"},
    Metric{"other_runs", "1", Better::lower,
           "other network measurements that ran on the host at the same time"},
};

}  // namespace detail

inline constexpr Measurement client_server{"network.client_server",
                                           Scope::group,
                                           "Every client with every server: bandwidth, latency and "
                                           "rate over message sizes; sends are acknowledged.",
                                           detail::client_server_parameters,
                                           detail::sweep_metrics,
                                           runs_anywhere,
                                           detail::run_client_server};

inline constexpr Measurement all_to_all{"network.all_to_all",
                                        Scope::group,
                                        "Every rank with every other, in rounds of pairs: "
                                        "bandwidth, latency and rate over message sizes.",
                                        detail::all_to_all_parameters,
                                        detail::sweep_metrics,
                                        runs_anywhere,
                                        detail::run_all_to_all};

inline constexpr Measurement pairs{
    "network.pairs",
    Scope::group,
    "The pairs given, one after the other, each alone: the retest of suspects.",
    detail::pairs_parameters,
    detail::pairs_metrics,
    runs_anywhere,
    detail::run_pairs};

inline constexpr Measurement one_way{"network.one_way",
                                     Scope::group,
                                     "Each direction of each rank by itself: rounds of pairs in "
                                     "which a rank only sends or receives.",
                                     detail::one_way_parameters,
                                     detail::one_way_metrics,
                                     runs_anywhere,
                                     detail::run_one_way};

inline constexpr Measurement saturation{"network.saturation",
                                        Scope::group,
                                        "Rounds of concurrent flows and of ping-pong, read from "
                                        "standard input: where a network's capacity ends.",
                                        detail::saturation_parameters,
                                        detail::saturation_metrics,
                                        runs_anywhere,
                                        detail::run_saturation};

inline constexpr Measurement counters{
    "network.counters",
    Scope::group,
    "Growth of the counters of each host's ports during a network measurement.",
    {},
    detail::counters_metrics,
    detail::recorded_by_others,
    detail::run_nothing};

inline constexpr Measurement wire{
    "network.wire",
    Scope::group,
    "Whether the payload went over the network's ports, by the kernel's own counters.",
    {},
    detail::wire_metrics,
    detail::recorded_by_others,
    detail::run_nothing};

}  // namespace assay::network
