// The measurements of the allocator study. Each run measures one allocator, in new processes.
#pragma once

#include <array>

#include "core/registry.hpp"

namespace assay::alloc {

namespace detail {
void run_cycle_study(const Options&, Bench&);
void run_retention_study(const Options&, Bench&);
void run_threads_study(const Options&, Bench&);
void run_handover_study(const Options&, Bench&);
void run_mixed_study(const Options&, Bench&);
void run_replay_study(const Options&, Bench&);

inline constexpr Parameter name_parameter{"allocator", Kind::text, "", "glibc",
                                          "its name in the records"};
inline constexpr Parameter library_parameter{
    "library", Kind::text, "", "",
    "path of the allocator's library; empty: the C library's allocator"};
inline constexpr Parameter settings_parameter{
    "settings", Kind::text, "", "", "its environment: NAME=value, several separated by blanks"};
inline constexpr Parameter no_huge_parameter{"no_huge_pages", Kind::flag, "", "",
                                             "disable the kernel's transparent huge pages"};
inline constexpr Parameter limit_parameter{
    "limit", Kind::real, "s", "300", "time limit of a process", 1, 86400};
inline constexpr Parameter threads_parameter{
    "threads", Kind::integers, "", "1", "numbers of threads", 1, 1024};

inline constexpr double max_bytes = 1e13;  // bytes

inline constexpr std::array cycle_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    threads_parameter,
    Parameter{"sizes", Kind::integers, "B", "16", "block sizes", 1, max_bytes},
    Parameter{"seconds", Kind::real, "s", "0.5", "duration, for each size", 0.001, 3600},
};
inline constexpr std::array cycle_metrics = {
    Metric{"malloc", "s", Better::lower, "a call, with the clock around malloc alone"},
    Metric{"first_touch", "s", Better::lower, "one store a page of a block, for the first time"},
    Metric{"retouch", "s", Better::lower, "the same again"},
    Metric{"free", "s", Better::lower, "a call"},
    Metric{"malloc_touch", "s", Better::lower,
           "a call, with the clock around malloc and one store a page"},
    Metric{"pair", "s", Better::lower, "malloc and an immediate free"},
    Metric{"overhead", "s", Better::none, "of the benchmark's loop in a pair"},
    Metric{"malloc_faults", "1", Better::lower, "page faults in a call of malloc"},
    Metric{"first_touch_faults", "1", Better::lower, "page faults in a block's first touch"},
    Metric{"retouch_faults", "1", Better::lower, "page faults in a block's second touch"},
    Metric{"free_faults", "1", Better::lower, "page faults in a call of free"},
    Metric{"tick_rate", "1/s", Better::none, "frequency of the time-stamp counter"},
};

inline constexpr std::array retention_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"sizes", Kind::integers, "B", "16", "block sizes", 1, max_bytes},
    Parameter{"cycles", Kind::integer, "", "10",
              "how often all blocks are allocated, touched and freed", 1, 100000},
    Parameter{"total", Kind::integer, "B", "16MiB",
              "bytes of all blocks together; at least one block", 1, max_bytes},
};
inline constexpr std::array retention_metrics = {
    Metric{"live", "B", Better::lower, "resident while all blocks are live and touched"},
    Metric{"huge", "B", Better::none, "part of it in huge pages"},
    Metric{"retained", "B", Better::lower,
           "resident after all blocks are freed, by number of cycles"},
};

inline constexpr std::array threads_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    threads_parameter,
    Parameter{"seconds", Kind::real, "s", "1", "duration, for each number of threads", 0.01, 3600},
};
inline constexpr std::array threads_metrics = {
    Metric{"rate", "1/s", Better::higher,
           "blocks of 16 B to 1 KiB freed and replaced, by all threads"},
};

inline constexpr std::array handover_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    threads_parameter,
    Parameter{"sizes", Kind::integers, "B", "64,4096", "block sizes", 1, max_bytes},
    Parameter{"seconds", Kind::real, "s", "1", "duration, for each size and number of threads",
              0.01, 3600},
};
inline constexpr std::array handover_metrics = {
    Metric{"rate", "1/s", Better::higher,
           "blocks that one thread allocates and another frees, by all pairs"},
    Metric{"retained", "B", Better::lower, "resident after all blocks are freed"},
};

inline constexpr std::array mixed_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"total", Kind::integer, "B", "64MiB", "live bytes at most", 1 << 20, max_bytes},
};
inline constexpr std::array mixed_metrics = {
    Metric{"peak_over_live", "1", Better::lower, "peak resident over peak live memory"},
    Metric{"end_over_live", "1", Better::lower,
           "resident over live memory, after nine of ten blocks are freed"},
    Metric{"operation", "s", Better::lower, "mean time of a call of malloc or free"},
    Metric{"retained", "B", Better::lower, "resident after all blocks are freed"},
};

inline constexpr std::array replay_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"script", Kind::text, "", "", "a heap trace, converted by assay-alloc prepare"},
    Parameter{"trace", Kind::text, "", "", "the trace's name in the records"},
    Parameter{"repeats", Kind::integer, "", "3", "number of replays, each in a new process", 1,
              1000},
    Parameter{"no_touch", Kind::flag, "", "", "do not touch the blocks' pages"},
};
inline constexpr std::array replay_metrics = {
    Metric{"time", "s", Better::lower,
           "in calls and first touches, all threads, without the replay's overhead"},
    Metric{"touch", "s", Better::lower, "part of it in first touches, each timed"},
    Metric{"wall", "s", Better::lower,
           "from the first call to the last, without reading the resident memory"},
    Metric{"calls", "1", Better::none, "of malloc, calloc, realloc and free"},
    Metric{"malloc", "s", Better::lower,
           "a call of malloc or calloc, each timed: order statistics of all calls"},
    Metric{"realloc", "s", Better::lower, "a call of realloc"},
    Metric{"free", "s", Better::lower, "a call of free"},
    Metric{"faults", "1", Better::lower, "page faults of all threads"},
    Metric{"peak", "B", Better::lower, "peak resident memory, above that at the start"},
    Metric{"peak_live", "B", Better::none, "peak live memory in the trace"},
    Metric{"peak_over_live", "1", Better::lower, "peak over peak_live"},
};
}  // namespace detail

inline constexpr Measurement cycle{
    "profile.alloc.cycle",
    Scope::node,
    "Blocks of one size: malloc, first touch, second touch and free, "
    "each timed separately, with page faults.",
    detail::cycle_parameters,
    detail::cycle_metrics,
    runs_anywhere,
    detail::run_cycle_study};
inline constexpr Measurement retention{"profile.alloc.retention",
                                       Scope::node,
                                       "Resident memory after free, over cycles.",
                                       detail::retention_parameters,
                                       detail::retention_metrics,
                                       runs_anywhere,
                                       detail::run_retention_study};
inline constexpr Measurement threads{
    "profile.alloc.threads",
    Scope::node,
    "Small blocks of mixed sizes, replaced by several threads at once.",
    detail::threads_parameters,
    detail::threads_metrics,
    runs_anywhere,
    detail::run_threads_study};
inline constexpr Measurement handover{"profile.alloc.handover",
                                      Scope::node,
                                      "Blocks allocated by one thread and freed by another.",
                                      detail::handover_parameters,
                                      detail::handover_metrics,
                                      runs_anywhere,
                                      detail::run_handover_study};
inline constexpr Measurement mixed{"profile.alloc.mixed",
                                   Scope::node,
                                   "Resident over live memory, for random sizes and lifetimes.",
                                   detail::mixed_parameters,
                                   detail::mixed_metrics,
                                   runs_anywhere,
                                   detail::run_mixed_study};
inline constexpr Measurement replay{"profile.alloc.replay",
                                    Scope::node,
                                    "The calls of a recorded program, replayed.",
                                    detail::replay_parameters,
                                    detail::replay_metrics,
                                    runs_anywhere,
                                    detail::run_replay_study};

}  // namespace assay::alloc
