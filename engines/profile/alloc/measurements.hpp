// What the allocator study measures: each one allocator, on processes of its own.
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
                                          "the name that the records say"};
inline constexpr Parameter library_parameter{
    "library", Kind::text, "", "", "the allocator's library, by path; none: the C library's own"};
inline constexpr Parameter settings_parameter{
    "settings", Kind::text, "", "",
    "environment that it is started with: NAME=value, several with blanks between"};
inline constexpr Parameter no_huge_parameter{"no_huge_pages", Kind::flag, "", "",
                                             "without the kernel's transparent huge pages"};
inline constexpr Parameter limit_parameter{
    "limit", Kind::real, "s", "300", "until a process is given up", 1, 86400};
inline constexpr Parameter threads_parameter{
    "threads", Kind::integers, "", "1", "numbers of threads", 1, 1024};

inline constexpr double largest = 1e13;  // bytes

inline constexpr std::array cycle_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    threads_parameter,
    Parameter{"sizes", Kind::integers, "B", "16", "block sizes", 1, largest},
    Parameter{"seconds", Kind::real, "s", "0.5", "how long each size is repeated", 0.001, 3600},
};
inline constexpr std::array cycle_metrics = {
    Metric{"malloc", "s", Better::lower, "a call, the clock around malloc alone"},
    Metric{"first_touch", "s", Better::lower, "one store a page of a block, for the first time"},
    Metric{"retouch", "s", Better::lower, "the same again"},
    Metric{"free", "s", Better::lower, "a call"},
    Metric{"malloc_touch", "s", Better::lower,
           "a call, the clock around malloc and one store a page"},
    Metric{"pair", "s", Better::lower, "malloc and at once free"},
    Metric{"overhead", "s", Better::none, "of the study's own loop in a pair"},
    Metric{"malloc_faults", "1", Better::lower, "page faults in a call of malloc"},
    Metric{"first_touch_faults", "1", Better::lower, "page faults in a block's first touch"},
    Metric{"retouch_faults", "1", Better::lower, "page faults in its second"},
    Metric{"free_faults", "1", Better::lower, "page faults in a call of free"},
    Metric{"tick_rate", "1/s", Better::none, "of the counter that times: what a cycle is"},
};

inline constexpr std::array retention_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"sizes", Kind::integers, "B", "16", "block sizes", 1, largest},
    Parameter{"cycles", Kind::integer, "", "10",
              "how often everything is allocated, touched and freed", 1, 100000},
    Parameter{"total", Kind::integer, "B", "16MiB",
              "bytes of all blocks together, one block at least", 1, largest},
};
inline constexpr std::array retention_metrics = {
    Metric{"live", "B", Better::lower, "resident while all blocks are live and touched"},
    Metric{"huge", "B", Better::none, "of it in huge pages"},
    Metric{"retained", "B", Better::lower, "resident after all has been freed, so many cycles on"},
};

inline constexpr std::array threads_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    threads_parameter,
    Parameter{"seconds", Kind::real, "s", "1", "how long, for each number of threads", 0.01, 3600},
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
    Parameter{"sizes", Kind::integers, "B", "64,4096", "block sizes", 1, largest},
    Parameter{"seconds", Kind::real, "s", "1", "how long, for each size and number of threads",
              0.01, 3600},
};
inline constexpr std::array handover_metrics = {
    Metric{"rate", "1/s", Better::higher,
           "blocks that one thread allocates and another frees, by all pairs"},
    Metric{"retained", "B", Better::lower, "resident after the last has been freed"},
};

inline constexpr std::array mixed_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"total", Kind::integer, "B", "64MiB", "live bytes at most", 1 << 20, largest},
};
inline constexpr std::array mixed_metrics = {
    Metric{"peak_over_live", "1", Better::lower, "most that was resident over most that was live"},
    Metric{"end_over_live", "1", Better::lower,
           "resident over live, when nine blocks of ten have been freed"},
    Metric{"operation", "s", Better::lower, "a call of malloc or free, mean"},
    Metric{"retained", "B", Better::lower, "resident after all has been freed"},
};

inline constexpr std::array replay_parameters = {
    name_parameter,
    library_parameter,
    settings_parameter,
    no_huge_parameter,
    limit_parameter,
    Parameter{"script", Kind::text, "", "", "what assay-alloc prepare has made of a heap trace"},
    Parameter{"trace", Kind::text, "", "", "the name of the trace, for the records"},
    Parameter{"repeats", Kind::integer, "", "3", "how often, each in a process of its own", 1,
              1000},
    Parameter{"no_touch", Kind::flag, "", "", "leave the blocks' pages alone"},
};
inline constexpr std::array replay_metrics = {
    Metric{"time", "s", Better::lower,
           "in the calls and first touches of all threads, less what playing the script takes"},
    Metric{"touch", "s", Better::lower, "of it in first touches, by a clock around each"},
    Metric{"wall", "s", Better::lower,
           "from the first call to the last, without what the study looks at"},
    Metric{"calls", "1", Better::none, "of malloc, calloc, realloc and free"},
    Metric{"malloc", "s", Better::lower,
           "a call of malloc or calloc, by a clock around each: order statistics over all"},
    Metric{"realloc", "s", Better::lower, "a call of realloc"},
    Metric{"free", "s", Better::lower, "a call of free"},
    Metric{"faults", "1", Better::lower, "page faults of all threads"},
    Metric{"peak", "B", Better::lower, "most that was resident, above what was before"},
    Metric{"peak_live", "B", Better::none, "most that was live in the trace"},
    Metric{"peak_over_live", "1", Better::lower, "the one over the other"},
};
}  // namespace detail

inline constexpr Measurement cycle{"profile.alloc.cycle",
                                   Scope::node,
                                   "Blocks of one size: malloc, first touch, touch again and free, "
                                   "each timed apart, with page faults.",
                                   detail::cycle_parameters,
                                   detail::cycle_metrics,
                                   runs_anywhere,
                                   detail::run_cycle_study};
inline constexpr Measurement retention{"profile.alloc.retention",
                                       Scope::node,
                                       "What stays resident after free, over cycles.",
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
                                   "Resident over live memory, with sizes and lifetimes at random.",
                                   detail::mixed_parameters,
                                   detail::mixed_metrics,
                                   runs_anywhere,
                                   detail::run_mixed_study};
inline constexpr Measurement replay{"profile.alloc.replay",
                                    Scope::node,
                                    "A recorded program's calls, made again.",
                                    detail::replay_parameters,
                                    detail::replay_metrics,
                                    runs_anywhere,
                                    detail::run_replay_study};

}  // namespace assay::alloc
