// Statistics of all allocations by stack, by thread and over time. One pass over the events
// collects them. The memory use is proportional to the numbers of live blocks and of stacks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <tsl/robin_map.h>

#include "profile/analyse/group_peaks.hpp"
#include "profile/analyse/heap_schema.hpp"
#include "profile/trace/hash.hpp"

namespace assay::heap {

// Number of bins of the log2 histograms: of sizes in bytes, and of lifetimes in units of 16 ticks.
inline constexpr std::size_t log2_bins = 48;

// The figures of the blocks that one stack allocates, and the intermediate sums.
struct StackStats : HeapFigures {
    std::uint64_t live = 0, live_count = 0;  // bytes and blocks
    std::uint64_t peak_epoch = 0;            // number of the process peak that at_peak belongs to
    // Total time in ticks and number of the timed allocation calls.
    std::uint64_t sampled_ticks = 0, sampled_calls = 0;
    std::uint64_t sampled_free_ticks = 0, sampled_frees = 0;  // the same for frees

    bool is_used() const { return (count | frees | reallocated) != 0; }
};

// Histograms of one stack's blocks.
struct Histograms {
    std::array<std::uint32_t, log2_bins> sizes{}, lifetimes{};
};

// Calls of one function by one thread. Only a sample of the calls is timed; the mean is
// extrapolated to all calls. Long calls (a page fault, a wait for a lock) are rare and count once,
// without a weight.
struct CallTimes {
    static constexpr std::uint32_t long_call = 1 << 17;  // ticks, about 50 us

    std::uint64_t count = 0;
    std::uint64_t sampled_ticks = 0, sampled_calls = 0;  // of the timed calls that are not long
    std::uint64_t long_call_ticks = 0;

    void add(std::uint32_t ticks, std::uint64_t weight) {
        count += weight;
        if (ticks >= long_call) {
            long_call_ticks += ticks;
        } else if (ticks != 0) {
            sampled_ticks += ticks * weight;
            sampled_calls += weight;
        }
    }
    double ticks() const {
        const double mean = sampled_calls > 0 ? static_cast<double>(sampled_ticks) /
                                                    static_cast<double>(sampled_calls)
                                              : 0;
        return mean * static_cast<double>(count) + static_cast<double>(long_call_ticks);
    }
};

// A live block. In a sampled trace it represents `weight` blocks.
struct Block {
    std::uint64_t size, weight, time;
    std::uint32_t stack, thread;
    std::uint64_t ordinal;  // number of the allocation within its thread
};
using Blocks = tsl::robin_map<std::uint64_t, Block, BlockHash>;  // by address

struct ThreadStats {
    std::uint32_t serial = 0;
    std::array<CallTimes, 16> calls{};  // by Kind
    std::uint64_t bytes = 0;
    std::uint64_t foreign_frees = 0;                // of blocks that another thread has allocated
    std::uint64_t first_event = 0, last_event = 0;  // ticks
    // The thread's stack, in bytes, sampled at its allocations and frees.
    std::uint64_t deepest = 0, deepest_time = 0, resident = 0;
    std::uint32_t deepest_stack = 0;   // id of the deepest stack
    std::vector<std::uint64_t> depth;  // maximum within each step of the timeline
    std::uint64_t allocations = 0;     // events, also of a sampled trace
    Block reallocating{};              // between realloc_from and realloc
    bool is_reallocating = false;
};

// Allocations over time, in steps of equal length.
struct Timeline {
    std::uint64_t first = 0, step = 1;  // ticks
    std::vector<std::uint64_t> live;    // maximum within the step, bytes
    std::vector<std::uint64_t> count, bytes;
};

class AllocationStats {
public:
    // Blocks of fewer bytes are also counted by their exact size.
    static constexpr std::size_t exact_size_limit = 64 << 10;

    // `first` and `last`: times of the first and the last event, ticks. `groups`: receives every
    // change of a stack's live bytes. `sample_bytes`: as in ProcessInfo (trace/format.hpp).
    AllocationStats(std::uint64_t first, std::uint64_t last, std::size_t steps, std::size_t stacks,
                    GroupPeaks* groups = nullptr, std::uint64_t sample_bytes = 0);
    void add(std::uint32_t thread, const Event& event);  // in time order
    void finish();  // to be called once, before the stacks' figures are read
    const Blocks& blocks() const { return blocks_; }

    std::vector<StackStats> stacks;                       // by stack id
    std::vector<std::unique_ptr<Histograms>> histograms;  // by stack id; null without allocations
    std::unordered_map<std::uint32_t, ThreadStats> threads;  // by serial number
    Timeline timeline;
    std::array<std::uint64_t, log2_bins> sizes{};  // blocks by log2 of their size
    std::vector<std::uint64_t> exact_sizes =
        std::vector<std::uint64_t>(exact_size_limit);  // blocks by size
    // Freed blocks by log2 of their lifetime and log2 of their size.
    std::array<std::array<std::uint64_t, log2_bins>, log2_bins> lifetimes{};
    std::uint64_t live = 0, live_count = 0, peak = 0, peak_count = 0, peak_time = 0;
    std::uint64_t leaked = 0, leaked_count = 0;  // after finish()
    std::uint64_t count = 0, bytes = 0, frees = 0;
    std::uint64_t unknown_frees = 0;  // of blocks whose allocation was not recorded
    std::uint64_t mapped = 0, mapped_bytes = 0;
    std::uint64_t events = 0;

private:
    StackStats& stack(std::uint32_t id);
    ThreadStats& thread_of(std::uint32_t serial);
    void record_allocation(ThreadStats& thread, const Event& event, std::uint64_t address,
                           std::uint64_t size);
    bool remove_block(ThreadStats& thread, std::uint64_t time, std::uint64_t address,
                      Block& removed);
    void restore_block(std::uint64_t address, const Block& block);
    void record_lifetime(const Block& block, std::uint64_t time);
    void update_at_peak(StackStats& stats);
    void update_peak(std::uint64_t time);
    void change_live(const Block& block, std::int64_t sign);
    void record_stack_depth(ThreadStats& thread, const Event& event);
    std::size_t step_of(std::uint64_t time) const;
    std::size_t advance_timeline(std::uint64_t time);
    std::uint64_t sample_weight(std::uint64_t size) const;

    GroupPeaks* groups_;
    std::uint64_t sample_bytes_;
    Blocks blocks_;
    ThreadStats* last_thread_ = nullptr;  // of the last event
    std::uint64_t peak_epoch_ = 0;
    std::size_t step_ = 0;         // of the timeline
    std::uint64_t last_live_ = 0;  // live bytes after the last event
};

}  // namespace assay::heap
