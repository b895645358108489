// Counts allocations, frees, peaks and lifetimes by stack, thread and time.
#include "profile/analyse/allocation_stats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "profile/stack/tree.hpp"

namespace assay::heap {
namespace {

std::size_t log2_bin(std::uint64_t value) {
    return std::min<std::size_t>(log2_bins - 1, value == 0 ? 0 : std::bit_width(value) - 1);
}

std::uint64_t extrapolate(std::uint64_t ticks, std::uint64_t timed, std::uint64_t calls) {
    return timed == 0 ? 0
                      : static_cast<std::uint64_t>(
                            std::llround(static_cast<double>(ticks) / static_cast<double>(timed) *
                                         static_cast<double>(calls)));
}

// Computes the figures that derive from other figures.
void derive_figures(StackStats& stats) {
    stats.leaked = stats.live;
    stats.leaked_count = stats.live_count;
    stats.freed = stats.count - stats.live_count;
    const std::uint64_t same_stack_reallocations = stats.reallocated - stats.foreign_reallocations;
    stats.new_blocks =
        stats.count > same_stack_reallocations ? stats.count - same_stack_reallocations : 0;
    stats.malloc_time = extrapolate(stats.sampled_ticks, stats.sampled_calls, stats.count);
    stats.free_time = extrapolate(stats.sampled_free_ticks, stats.sampled_frees, stats.frees);
}

}  // namespace

AllocationStats::AllocationStats(std::uint64_t first, std::uint64_t last, std::size_t steps,
                                 std::size_t stack_count, GroupPeaks* groups,
                                 std::uint64_t sample_bytes)
    : stacks(stack_count), histograms(stack_count), groups_(groups), sample_bytes_(sample_bytes) {
    timeline.first = first;
    timeline.step = std::max<std::uint64_t>(1, (last - first) / steps + 1);
    timeline.live.resize(steps);
    timeline.count.resize(steps);
    timeline.bytes.resize(steps);
}

// The number of blocks that a sampled block stands for. A block is sampled if one of its bytes is,
// i.e. with probability 1 - exp(-size / sample_bytes).
std::uint64_t AllocationStats::sample_weight(std::uint64_t size) const {
    constexpr double max_weight = 1e15;  // limit for absurd sampling intervals
    if (sample_bytes_ == 0) return 1;
    const double probability = -std::expm1(-static_cast<double>(std::max<std::uint64_t>(1, size)) /
                                           static_cast<double>(sample_bytes_));
    return static_cast<std::uint64_t>(std::llround(std::min(1 / probability, max_weight)));
}

std::size_t AllocationStats::step_of(std::uint64_t time) const {
    const std::uint64_t elapsed = time > timeline.first ? time - timeline.first : 0;
    return std::min<std::size_t>(elapsed / timeline.step, timeline.live.size() - 1);
}

// Records the live bytes in the timeline step of `time`. Steps without an event get the live bytes
// of the previous event. Returns the step.
std::size_t AllocationStats::advance_timeline(std::uint64_t time) {
    const std::size_t step = step_of(time);
    while (step_ < step) timeline.live[++step_] = last_live_;
    timeline.live[step_] = std::max(timeline.live[step_], live);
    last_live_ = live;
    return step_;
}

StackStats& AllocationStats::stack(std::uint32_t id) {
    if (id >= stacks.size()) {
        stacks.resize(id + 1);
        histograms.resize(id + 1);
    }
    return stacks[id];
}

// Called before a stack's live bytes change. If they have not changed since the process's last
// peak, they are the stack's live bytes at that peak.
void AllocationStats::update_at_peak(StackStats& stats) {
    if (stats.peak_epoch == peak_epoch_) return;
    stats.at_peak = stats.live;
    stats.peak_epoch = peak_epoch_;
}

void AllocationStats::update_peak(std::uint64_t time) {
    if (live <= peak) return;
    peak = live;
    peak_count = live_count;
    peak_time = time;
    ++peak_epoch_;
}

void AllocationStats::change_live(const Block& block, std::int64_t sign) {
    StackStats& stats = stack(block.stack);
    update_at_peak(stats);
    // Modulo 2^64: a damaged trace may have any sizes.
    const std::uint64_t block_change = sign < 0 ? -block.weight : block.weight;
    const std::uint64_t byte_change = block_change * block.size;
    stats.live += byte_change;
    stats.live_count += block_change;
    live += byte_change;
    live_count += block_change;
    stats.peak = std::max(stats.peak, stats.live);
    if (groups_ != nullptr) groups_->add(block.stack, static_cast<std::int64_t>(byte_change));
}

void AllocationStats::record_stack_depth(ThreadStats& thread, const Event& event) {
    if (event.stack == stack::no_stack) {
        thread.resident = event.size;
        return;
    }
    if (thread.depth.empty()) thread.depth.resize(timeline.live.size());
    std::uint64_t& max_depth = thread.depth[step_of(event.time)];
    max_depth = std::max(max_depth, event.size);
    if (event.size <= thread.deepest) return;
    thread.deepest = event.size;
    thread.deepest_time = event.time;
    thread.deepest_stack = event.stack;
}

// Threads have many events in a row.
ThreadStats& AllocationStats::thread_of(std::uint32_t serial) {
    if (last_thread_ == nullptr || last_thread_->serial != serial) {
        last_thread_ = &threads[serial];
        last_thread_->serial = serial;
    }
    return *last_thread_;
}

void AllocationStats::add(std::uint32_t serial, const Event& event) {
    ++events;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event);
    ThreadStats& thread = thread_of(serial);
    if (thread.first_event == 0) thread.first_event = event.time;
    thread.last_event = event.time;
    Block block{};
    std::uint64_t weight = 1;
    switch (kind) {
        case Kind::malloc:
        case Kind::calloc:
        case Kind::memalign:
            weight = sample_weight(event.size);
            record_allocation(thread, event, address, event.size);
            break;
        case Kind::free:
            if (remove_block(thread, event.time, address, block)) weight = block.weight;
            stack(event.stack).frees += weight;
            if (event.call_ticks != 0) {
                stack(event.stack).sampled_free_ticks += event.call_ticks * weight;
                stack(event.stack).sampled_frees += weight;
            }
            if (block.weight == 0) break;  // the allocation was not recorded
            record_lifetime(block, event.time);
            // Temporary: freed by its thread before the thread's next allocation.
            if (block.thread == serial && thread.allocations == block.ordinal)
                stack(block.stack).temporary += block.weight;
            break;
        // A reallocation is two events: realloc_from with the old block, then realloc with the new.
        case Kind::realloc_from:
            thread.is_reallocating = remove_block(thread, event.time, address, thread.reallocating);
            break;
        case Kind::realloc:
            if (event.size == not_reallocated) {
                if (thread.is_reallocating) restore_block(address, thread.reallocating);
            } else {
                if (thread.is_reallocating) {
                    record_lifetime(thread.reallocating, event.time);
                    ++stack(event.stack).reallocated;
                    stack(event.stack).foreign_reallocations +=
                        thread.reallocating.stack != event.stack;
                }
                if (address != 0) record_allocation(thread, event, address, event.size);
            }
            thread.is_reallocating = false;
            break;
        case Kind::map:
            ++mapped;
            mapped_bytes += event.size;
            break;
        case Kind::stack: record_stack_depth(thread, event); break;
        default: break;
    }
    thread.calls[static_cast<std::size_t>(kind) & 15].add(event.call_ticks, weight);
}

void AllocationStats::record_allocation(ThreadStats& thread, const Event& event,
                                        std::uint64_t address, std::uint64_t size) {
    const std::uint64_t weight = sample_weight(size);
    const Block block{size, weight, event.time, event.stack, thread.serial, ++thread.allocations};
    // A live block at this address was freed without an event.
    if (Block stale; blocks_.contains(address) && remove_block(thread, event.time, address, stale))
        record_lifetime(stale, event.time);
    blocks_.insert({address, block});
    change_live(block, 1);
    StackStats& stats = stack(event.stack);
    stats.count += weight;
    stats.bytes += size * weight;
    stats.min_size = std::min(stats.min_size, size);
    stats.max_size = std::max(stats.max_size, size);
    if (event.call_ticks != 0) {
        stats.sampled_ticks += event.call_ticks * weight;
        stats.sampled_calls += weight;
    }
    count += weight;
    bytes += size * weight;
    thread.bytes += size * weight;
    sizes[log2_bin(size)] += weight;
    if (size < exact_size_limit) exact_sizes[size] += weight;
    std::unique_ptr<Histograms>& stack_histograms = histograms[event.stack];
    if (stack_histograms == nullptr) stack_histograms = std::make_unique<Histograms>();
    stack_histograms->sizes[log2_bin(size)] += static_cast<std::uint32_t>(weight);
    const std::size_t step = advance_timeline(event.time);
    timeline.count[step] += weight;
    timeline.bytes[step] += size * weight;
    update_peak(event.time);
}

// Removes a block from the live blocks. Returns false if its allocation was not recorded.
bool AllocationStats::remove_block(ThreadStats& thread, std::uint64_t time, std::uint64_t address,
                                   Block& removed) {
    const auto block = blocks_.find(address);
    if (block == blocks_.end()) {
        ++unknown_frees;
        return false;
    }
    removed = block->second;
    blocks_.erase(block);
    change_live(removed, -1);
    advance_timeline(time);
    if (removed.thread != thread.serial) ++thread.foreign_frees;
    return true;
}

void AllocationStats::restore_block(std::uint64_t address, const Block& block) {
    blocks_.insert({address, block});
    change_live(block, 1);
}

void AllocationStats::record_lifetime(const Block& block, std::uint64_t time) {
    StackStats& stats = stack(block.stack);
    const std::uint64_t lifetime = time > block.time ? time - block.time : 0;
    stats.lifetimes += lifetime * block.weight;
    stats.min_lifetime = std::min(stats.min_lifetime, lifetime);
    stats.max_lifetime = std::max(stats.max_lifetime, lifetime);
    if (Histograms* stack_histograms = histograms[block.stack].get())
        stack_histograms->lifetimes[log2_bin(lifetime >> time_shift)] +=
            static_cast<std::uint32_t>(block.weight);
    frees += block.weight;
    lifetimes[log2_bin(lifetime >> time_shift)][log2_bin(block.size)] += block.weight;
}

void AllocationStats::finish() {
    for (StackStats& stats : stacks) {
        update_at_peak(stats);
        derive_figures(stats);
    }
    leaked = live;
    leaked_count = live_count;
    while (step_ + 1 < timeline.live.size()) timeline.live[++step_] = last_live_;
    if (groups_ != nullptr) groups_->finish();
}

}  // namespace assay::heap
