// What the study and the process that it measures share: a task, and the samples that came of it.
//
// The measured process is started anew for each task, so that no allocator remembers the last one.
// It has nothing but this board to say what it found: it writes no JSON, since that would allocate
// from what is being measured.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::alloc {

enum class What : std::uint32_t {
    serve,
    cycle,
    touched,
    retention,
    churn,
    handover,
    mixed,
    replay
};

struct Task {
    What what = What::serve;
    std::uint32_t threads = 1;
    std::uint32_t cycles = 1;  // at least; of retention and mixed: exactly
    std::uint32_t touch = 1;   // of replay: one store a page of each block
    std::uint32_t each = 0;    // of replay: a clock around each call
    std::uint64_t size = 0;    // bytes of a block
    std::uint64_t total = 0;   // bytes of all blocks of a batch together
    double seconds = 0;        // how long to repeat
    double tick_s = 1e-9;      // seconds a tick
    char script[1024] = {};    // of replay: the path
};

// What is sampled. Times are seconds a call, faults are a call's, memory is in bytes.
enum class Series : std::uint32_t {
    malloc_first,
    touch_first,
    retouch_first,
    free_first,
    malloc_faults_first,
    touch_faults_first,
    retouch_faults_first,
    free_faults_first,
    malloc_touch_first,
    malloc,
    touch,
    retouch,
    free,
    malloc_faults,
    touch_faults,
    retouch_faults,
    free_faults,
    malloc_touch,
    pair,
    overhead,
    live,
    huge,
    retained_first,
    retained_half,
    retained,
    rate,
    operation,
    peak_over_live,
    end_over_live,
    realloc,
    calls,
    in_calls,
    in_touch,
    wall,
    faults,
    peak,
    peak_live,
    count_of_series
};
inline constexpr std::size_t series_count = static_cast<std::size_t>(Series::count_of_series);
inline constexpr std::uint32_t series_room = 4096;

// Of the calls of a replay, which are too many to keep: order statistics in seconds.
struct Order {
    std::uint64_t n;
    double median, mad, min, max, p5, p95, p99;
};
enum class Call : std::uint32_t { malloc, realloc, free, count_of_calls };
inline constexpr std::size_t call_count = static_cast<std::size_t>(Call::count_of_calls);

struct Board {
    Task task;
    char serving[1024];       // the file whose malloc is called
    char other_function[32];  // one that another file serves; empty where there is none
    char other_file[1024];
    char refused[512];                // why there are no samples
    std::atomic<std::uint32_t> done;  // the task ended by itself
    Order calls[call_count];
    std::atomic<std::uint32_t> used[series_count];
    double samples[series_count][series_room];

    void add(Series series, double value) {
        const auto s = static_cast<std::size_t>(series);
        const std::uint32_t at = used[s].fetch_add(1, std::memory_order_relaxed);
        if (at < series_room) samples[s][at] = value;
    }
    bool has_room(Series series, std::uint32_t wanted) const {
        return used[static_cast<std::size_t>(series)].load(std::memory_order_relaxed) + wanted <=
               series_room;
    }
};

inline constexpr int board_descriptor = 3;  // in the measured process

}  // namespace assay::alloc
