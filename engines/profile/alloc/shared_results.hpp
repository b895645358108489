// The memory that the benchmark shares with the measured process: the task and its results.
//
// Each task runs in a new process, so that the allocator retains nothing from an earlier task. The
// measured process reports only through this memory, since writing JSON would use the allocator
// under test.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::alloc {

enum class TaskKind : std::uint32_t {
    check,  // reports the library whose malloc is called, without a measurement
    cycle,
    first_batch,
    retention,
    churn,
    handover,
    mixed,
    replay
};

struct Task {
    TaskKind kind = TaskKind::check;
    std::uint32_t threads = 1;
    std::uint32_t cycles = 1;      // number of cycles (retention), or minimum number (cycle)
    std::uint32_t touch = 1;       // replay: 1: store one byte per page of each block
    std::uint32_t time_calls = 0;  // replay: 1: time each call
    std::uint64_t size = 0;        // of a block, bytes
    std::uint64_t total = 0;       // of all blocks together, bytes
    double seconds = 0;            // duration of the repetitions
    double tick_s = 1e-9;          // seconds per tick
    char script[1024] = {};        // replay: path
};

// Series of samples. Times are in seconds per call, page faults are counts per call, memory is in
// bytes.
// "_first": of the first batch of a process.
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
inline constexpr std::uint32_t max_samples = 4096;  // of each series

// Order statistics in seconds of the calls of a replay, which are too many to store.
struct OrderStatistics {
    std::uint64_t n;
    double median, mad, min, max, p5, p95, p99;
};
enum class Call : std::uint32_t { malloc, realloc, free, count_of_calls };
inline constexpr std::size_t call_count = static_cast<std::size_t>(Call::count_of_calls);

struct SharedResults {
    Task task;
    char malloc_library[1024];        // path of the object whose malloc is called
    char other_function[32];          // a function from another object; empty: none
    char other_library[1024];         // path of that object
    char waived_reason[512];          // the reason why there are no samples; empty: none
    std::atomic<std::uint32_t> done;  // the task has ended normally
    OrderStatistics calls[call_count];
    std::atomic<std::uint32_t> counts[series_count];  // samples; may exceed max_samples
    double samples[series_count][max_samples];

    void add(Series series, double value) {
        const auto s = static_cast<std::size_t>(series);
        const std::uint32_t index = counts[s].fetch_add(1, std::memory_order_relaxed);
        if (index < max_samples) samples[s][index] = value;
    }
    bool has_room(Series series, std::uint32_t count) const {
        return counts[static_cast<std::size_t>(series)].load(std::memory_order_relaxed) + count <=
               max_samples;
    }
};

inline constexpr int results_descriptor = 3;  // file descriptor in the measured process

}  // namespace assay::alloc
