// What became of every block: per stack, per thread and over time, in one pass and in memory that
// is bounded by the live blocks and the stacks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <tsl/robin_map.h>

#include "profile/analyse/peaks.hpp"
#include "profile/trace/hash.hpp"

namespace assay::heap {

inline constexpr std::size_t powers = 48;  // of two: of sizes in bytes, of lifetimes in ticks >> 4

// Of the blocks that one stack has asked for. Bytes are requested bytes.
struct StackAccount {
    std::uint64_t count = 0, bytes = 0;
    std::uint64_t live = 0, live_count = 0;   // now; at the end: leaked
    std::uint64_t peak = 0;                   // the most that was live of this stack
    std::uint64_t at_peak = 0;                // live when the whole process was at its peak
    std::uint64_t epoch = 0;                  // of the process's peak, that at_peak is of
    std::uint64_t temporary = 0;              // freed before the thread's next allocation
    std::uint64_t reallocated = 0;            // blocks that a realloc from here has taken over
    std::uint64_t foreign_reallocations = 0;  // those of them that another stack had asked for last
    std::uint64_t frees = 0;                  // by this stack, of whomever's blocks
    std::uint64_t lifetime = 0;               // ticks, sum over the freed
    std::uint64_t sampled_ticks = 0,
                  sampled_calls = 0;  // ticks of the calls that were timed, and their number
    std::uint64_t sampled_free_ticks = 0, sampled_frees = 0;  // the same of the frees by this stack
    std::uint64_t least = ~std::uint64_t{0}, most = 0;        // size
    std::uint64_t shortest = ~std::uint64_t{0}, longest = 0;  // lifetime of the freed, ticks

    bool is_used() const { return count > 0 || frees > 0 || reallocated > 0; }
};

// How one stack's blocks are spread.
struct Spread {
    std::array<std::uint32_t, powers> sizes{}, lifetimes{};
};

// Some calls are timed, and stand for all, in a sample each for as many as it was taken for. A long
// one (a page fault, a wait for another thread) is rare, and stands for itself alone.
struct Calls {
    static constexpr std::uint32_t long_call = 1 << 17;  // ticks, some 50 us

    std::uint64_t count = 0;
    std::uint64_t sampled_ticks = 0,
                  sampled_calls = 0;  // ticks of the timed ones, and their number
    std::uint64_t long_cost = 0;      // ticks

    void add(std::uint32_t ticks, std::uint64_t weight) {
        count += weight;
        if (ticks >= long_call) {
            long_cost += ticks;
        } else if (ticks != 0) {
            sampled_ticks += ticks * weight;
            sampled_calls += weight;
        }
    }
    double ticks() const {
        const double each = sampled_calls > 0 ? static_cast<double>(sampled_ticks) /
                                                    static_cast<double>(sampled_calls)
                                              : 0;
        return each * static_cast<double>(count) + static_cast<double>(long_cost);
    }
};

struct ThreadAccount {
    std::array<Calls, 16> calls{};  // by Kind
    std::uint64_t bytes = 0;
    std::uint64_t foreign_frees = 0;    // of blocks that another thread has asked for
    std::uint64_t first = 0, last = 0;  // event, ticks
    // Its own stack, bytes; known where it allocates or frees.
    std::uint64_t deepest = 0, deepest_time = 0, resident = 0;
    std::uint32_t deepest_at = 0;      // which stack
    std::vector<std::uint64_t> depth;  // the most within each step of the timeline
};

// Time in equal steps.
struct Timeline {
    std::uint64_t first = 0, step = 1;  // ticks
    std::vector<std::uint64_t> live;    // the most within the step
    std::vector<std::uint64_t> count, bytes;
};

// A block that is live; of a sample, `weight` blocks.
struct Block {
    std::uint64_t size, weight, time;
    std::uint32_t stack, thread;
    std::uint64_t ordinal;  // of the thread's allocations
};
using Blocks = tsl::robin_map<std::uint64_t, Block, BlockHash>;  // by address

class Account {
public:
    static constexpr std::size_t exact_sizes =
        64 << 10;  // bytes: smaller blocks are counted for each size

    // `groups` follows what is live of stacks together; `sample` as in Process (trace/format.hpp).
    Account(std::uint64_t first, std::uint64_t last, std::size_t steps, std::size_t stacks,
            GroupPeaks* groups = nullptr, std::uint64_t sample = 0);
    void add(std::uint32_t thread, const Event& event);
    void finish();
    const Blocks& blocks() const { return blocks_; }

    std::vector<StackAccount> stacks;              // by the number of the stack
    std::vector<std::unique_ptr<Spread>> spreads;  // the same; null where nothing was asked for
    std::unordered_map<std::uint32_t, ThreadAccount> threads;  // by serial
    Timeline timeline;
    std::array<std::uint64_t, powers> sizes{};  // blocks by log2 of their size
    std::vector<std::uint64_t> exact =
        std::vector<std::uint64_t>(exact_sizes);  // blocks by their size, of small ones
    std::array<std::array<std::uint64_t, powers>, powers>
        lifetimes{};  // freed blocks, by log2 of lifetime and size
    std::uint64_t live = 0, live_count = 0, peak = 0, peak_count = 0, peak_time = 0;
    std::uint64_t count = 0, bytes = 0, frees = 0;
    std::uint64_t unknown_frees =
        0;  // of blocks from before the recording, or of what it has missed
    std::uint64_t mapped = 0, mapped_bytes = 0;
    std::uint64_t events = 0;

private:
    struct Threadly {
        std::uint64_t ordinal = 0;
        Block in_realloc{};
        bool reallocates = false;
    };

    StackAccount& stack(std::uint32_t id);
    void give(std::uint32_t thread, const Event& event, std::uint64_t address, std::uint64_t size);
    bool take(std::uint32_t thread, std::uint64_t time, std::uint64_t address, Block& taken);
    void retire(const Block& block, std::uint64_t time);
    void put_back(std::uint64_t address, const Block& block);
    void note(StackAccount& one);
    void note_peak(std::uint64_t time);
    void change_live(const Block& block, std::int64_t sign);
    void note_depth(ThreadAccount& thread, const Event& event);
    std::size_t step_of(std::uint64_t time) const;
    std::size_t step_at(std::uint64_t time);

    std::uint64_t weight_of(std::uint64_t size) const;

    GroupPeaks* groups_;
    std::uint64_t sample_;
    Blocks blocks_;
    std::unordered_map<std::uint32_t, Threadly> threadly_;
    std::uint64_t epoch_ = 0;
    std::size_t step_ = 0;
    std::uint64_t before_ = 0;  // live after the last event
};

}  // namespace assay::heap
