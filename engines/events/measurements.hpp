// The event-building measurements. Readout units send the fragments of each event to one builder
// unit, which an event manager has chosen. They run on any transport:
//
//     mpirun -np 8 assay-probe-openmpi run events.build --protocol push --schedule shift
//     ASSAY_NULL_RANKS=4 assay-probe run events.build --events 10000 --fragment 64KiB
//     mpirun -np 8 assay-probe-openmpi run events.alltoall --fragment 512KiB
//
// events.build also writes events.slices: the throughput in each slice of time.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::events {

namespace detail {

inline constexpr int exit_unusable = 2;  // settings or files that cannot be used

inline std::optional<std::string> recorded_by_build() { return "recorded by events.build"; }
void run_build(const Options&, Bench&);
void check_build(const Options&, int ranks);
void run_all_to_all(const Options&, Bench&);
inline void run_nothing(const Options&, Bench&) {}

inline constexpr Parameter fragment{"fragment",
                                    Kind::integer,
                                    "B",
                                    "512KiB",
                                    "bytes of one message, from a readout unit to a builder unit",
                                    256,
                                    1 << 30};
inline constexpr Parameter duration{
    "duration", Kind::real, "s", "10", "time for which events are assigned; 0: until --events",
    0,          1e7};
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

inline constexpr std::array build_parameters = {
    Parameter{"protocol", Kind::text, "", "push",
              "push: readout units send when an event is assigned; pull: builder units request"},
    Parameter{"schedule", Kind::text, "", "shift",
              "order of the transfers: shift, random, all (at once) or file"},
    Parameter{"schedule_file", Kind::text, "", "",
              "each line is a step: the destinations of rank 0, 1, ...; -1 for none"},
    Parameter{"synchronised", Kind::flag, "", "",
              "no rank begins a step of the schedule before all have ended the one before"},
    Parameter{"in_flight", Kind::integer, "", "4", "sends in flight of a readout unit", 1, 65536},
    Parameter{"credits", Kind::integer, "", "2", "events that a builder unit gathers at once", 1,
              1024},
    Parameter{"parallel", Kind::integer, "", "8", "pull: requests in flight of one event", 1,
              65536},
    fragment,
    Parameter{"sizes_file", Kind::text, "", "",
              "sizes of fragments by source; several events then share a message"},
    Parameter{"rate", Kind::real, "B/s", "0", "input of each readout unit; 0: as fast as possible",
              0, 1e15},
    duration,
    Parameter{"events", Kind::integer, "", "0", "events to build; 0: until --duration", 0, 1e18},
    Parameter{"units", Kind::text, "", "folded",
              "folded: each rank is readout and builder unit; split: odd ranks are readout units, "
              "even ones builder units, rank 0 manages"},
    Parameter{"filters", Kind::integer, "", "0",
              "the last ranks are filter units, which take the built events", 0, 65536},
    Parameter{"filter_rate", Kind::real, "B/s", "0",
              "intake of each filter unit; 0: as fast as possible", 0, 1e15},
    Parameter{"policy", Kind::text, "", "drop",
              "an event that lost a fragment: drop it, mark and deliver it, or wait for the source "
              "to come back"},
    Parameter{"slice", Kind::real, "s", "1", "length of the slices of time that are reported", 0.01,
              1e6},
    Parameter{"seed", Kind::integer, "", "1", "of sizes and of random schedules", 0, 4e9},
    timeout,
    yield_us,
    Parameter{"no_verify", Kind::flag, "", "",
              "do not verify payloads, to measure the cost of verification"},
};

inline constexpr std::array build_metrics = {
    Metric{"throughput", "B/s", Better::higher,
           "verified payload that builder units took, all ranks; one sample per slice"},
    Metric{"network_throughput", "B/s", Better::higher,
           "the same without the payload that ranks sent to themselves"},
    Metric{"rank_throughput", "B/s", Better::higher,
           "payload that one rank sent to others, or received from others (direction)"},
    Metric{"latency", "s", Better::lower,
           "of an event at its builder unit, from its assignment until it is complete"},
    Metric{"decision", "s", Better::lower, "of the event manager, per event"},
    Metric{"events_built", "1", Better::higher, "delivered with every fragment verified"},
    Metric{"events_incomplete", "1", Better::lower,
           "lost a fragment; dropped, or delivered with a mark (policy)"},
    Metric{"fragments_built", "1", Better::higher, "verified, in events that were built"},
    Metric{"fragments_lost", "1", Better::lower, "never arrived: their source was lost"},
    Metric{"fragments_partial", "1", Better::none, "verified, in events that lost another"},
    Metric{"fragments_corrupt", "1", Better::lower, "arrived with a wrong stamp, size or byte"},
    Metric{"fragments_duplicate", "1", Better::lower, "arrived twice, or for another event"},
    Metric{"events_reassigned", "1", Better::none,
           "given to another builder unit after theirs was lost"},
    Metric{"resume", "s", Better::lower,
           "from the last event that was built before a rank was lost until all others build "
           "again; one sample per death (lost: its rank)"},
    Metric{"return", "s", Better::lower,
           "from the loss of a rank that came back until it took part in a built event again "
           "(lost: its rank)"},
    Metric{"replan", "s", Better::lower,
           "from a change of the members until the plan for those that are left has been sent to "
           "all; only with a plan (steps: its length)"},
    Metric{"packets_sent", "1", Better::none,
           "by a rank's own TCP connections (segments with data) or as UDP datagrams"},
    Metric{"packets_resent", "1", Better::lower, "of these, sent again: lost, or late"},
    Metric{"backpressure", "s", Better::lower,
           "time in which a rank waited for credits or for a filter unit (waiting_for)"},
};

inline constexpr std::array slice_metrics = {
    Metric{"throughput", "B/s", Better::higher, "verified payload of all ranks in this slice"},
    Metric{"latency", "s", Better::lower, "of the events completed in this slice"},
    Metric{"rank_throughput", "B/s", Better::higher,
           "of the builder unit that received least from other ranks in this slice"},
};

inline constexpr std::array all_to_all_parameters = {
    fragment,
    Parameter{"repeats", Kind::integer, "", "10", "exchanges of each kind", 1, 1e6},
    Parameter{"budget", Kind::real, "s", "10", "no exchange starts after this time; 0: no limit", 0,
              1e6},
    timeout,
    yield_us,
};
inline constexpr std::array all_to_all_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "payload between different ranks, all ranks; operation: MPI_Alltoall, MPI_Alltoallv"},
    Metric{"verified_bandwidth", "B/s", Better::higher,
           "the same over the time in which a rank also writes what it sends and verifies what it "
           "receives, as the event builder does"},
};

}  // namespace detail

inline constexpr Measurement build{"events.build",
                                   Scope::group,
                                   "Builds events over the network: every fragment verified, with "
                                   "a ledger, through the loss of ranks.",
                                   detail::build_parameters,
                                   detail::build_metrics,
                                   runs_anywhere,
                                   detail::run_build,
                                   detail::check_build};

inline constexpr Measurement slices{"events.slices",
                                    Scope::group,
                                    "Throughput and latency of the event builder in each slice of "
                                    "time.",
                                    {},
                                    detail::slice_metrics,
                                    detail::recorded_by_build,
                                    detail::run_nothing};

inline constexpr Measurement all_to_all{
    "events.alltoall",
    Scope::group,
    "MPI_Alltoall and MPI_Alltoallv, for comparison with the event builder.",
    detail::all_to_all_parameters,
    detail::all_to_all_metrics,
    runs_anywhere,
    detail::run_all_to_all};

}  // namespace assay::events
