#include "profile/analyse/account.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "profile/stack/tree.hpp"

namespace assay::heap {
namespace {

std::size_t power(std::uint64_t value) {
    return std::min<std::size_t>(powers - 1, value == 0 ? 0 : std::bit_width(value) - 1);
}

}  // namespace

Account::Account(std::uint64_t first, std::uint64_t last, std::size_t steps,
                 std::size_t count_of_stacks, GroupPeaks* groups, std::uint64_t sample)
    : stacks(count_of_stacks), spreads(count_of_stacks), groups_(groups), sample_(sample) {
    timeline.first = first;
    timeline.step = std::max<std::uint64_t>(1, (last - first) / steps + 1);
    timeline.live.resize(steps);
    timeline.count.resize(steps);
    timeline.bytes.resize(steps);
}

// A block is in the sample when one of its bytes is: with probability 1 - exp(-size / sample).
std::uint64_t Account::weight_of(std::uint64_t size) const {
    if (sample_ == 0) return 1;
    const double part = -std::expm1(-static_cast<double>(std::max<std::uint64_t>(1, size)) /
                                    static_cast<double>(sample_));
    return static_cast<std::uint64_t>(std::llround(1 / part));
}

std::size_t Account::step_of(std::uint64_t time) const {
    const std::uint64_t since = time > timeline.first ? time - timeline.first : 0;
    return std::min<std::size_t>(since / timeline.step, timeline.live.size() - 1);
}

// The step of a moment, with what is live now in it; steps that have passed without an event are as
// the last one left.
std::size_t Account::step_at(std::uint64_t time) {
    const std::size_t step = step_of(time);
    while (step_ < step) timeline.live[++step_] = before_;
    timeline.live[step_] = std::max(timeline.live[step_], live);
    before_ = live;
    return step_;
}

StackAccount& Account::stack(std::uint32_t id) {
    if (id >= stacks.size()) {
        stacks.resize(id + 1);
        spreads.resize(id + 1);
    }
    return stacks[id];
}

// Before a stack's live bytes change: what they were at the process's last peak is what they are
// now, unless they have changed since.
void Account::note(StackAccount& one) {
    if (one.epoch == epoch_) return;
    one.at_peak = one.live;
    one.epoch = epoch_;
}

void Account::note_peak(std::uint64_t time) {
    if (live <= peak) return;
    peak = live;
    peak_count = live_count;
    peak_time = time;
    ++epoch_;
}

void Account::change_live(const Block& block, std::int64_t sign) {
    StackAccount& one = stack(block.stack);
    note(one);
    const std::int64_t blocks_more = sign * static_cast<std::int64_t>(block.weight);
    const std::int64_t bytes_more = blocks_more * static_cast<std::int64_t>(block.size);
    one.live += static_cast<std::uint64_t>(bytes_more);
    one.live_count += static_cast<std::uint64_t>(blocks_more);
    live += static_cast<std::uint64_t>(bytes_more);
    live_count += static_cast<std::uint64_t>(blocks_more);
    one.peak = std::max(one.peak, one.live);
    if (groups_ != nullptr) groups_->add(block.stack, bytes_more);
}

void Account::note_depth(ThreadAccount& thread, const Event& event) {
    if (event.stack == stack::no_stack) {
        thread.resident = event.size;
        return;
    }
    if (thread.depth.empty()) thread.depth.resize(timeline.live.size());
    std::uint64_t& most = thread.depth[step_of(event.time)];
    most = std::max(most, event.size);
    if (event.size <= thread.deepest) return;
    thread.deepest = event.size;
    thread.deepest_time = event.time;
    thread.deepest_at = event.stack;
}

void Account::add(std::uint32_t thread, const Event& event) {
    ++events;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event);
    ThreadAccount& its = threads[thread];
    if (its.first == 0) its.first = event.time;
    its.last = event.time;
    Block block{};
    std::uint64_t weight = 1;
    switch (kind) {
        case Kind::malloc:
        case Kind::calloc:
        case Kind::memalign:
            weight = weight_of(event.size);
            give(thread, event, address, event.size);
            break;
        case Kind::free:
            if (take(thread, event.time, address, block)) weight = block.weight;
            stack(event.stack).frees += weight;
            if (event.cost != 0) {
                stack(event.stack).sampled_free_ticks += event.cost * weight;
                stack(event.stack).sampled_frees += weight;
            }
            if (block.weight == 0) break;  // of nobody
            retire(block, event.time);
            if (block.thread == thread && threadly_[thread].ordinal == block.ordinal)
                stack(block.stack).temporary += block.weight;
            break;
        case Kind::realloc_from: {
            Threadly& own = threadly_[thread];
            own.reallocates = take(thread, event.time, address, own.in_realloc);
            break;
        }
        case Kind::realloc: {
            Threadly& own = threadly_[thread];
            if (event.size == not_reallocated) {
                if (own.reallocates) put_back(address, own.in_realloc);
            } else {
                if (own.reallocates) {
                    retire(own.in_realloc, event.time);
                    ++stack(event.stack).reallocated;
                    stack(event.stack).foreign_reallocations += own.in_realloc.stack != event.stack;
                }
                if (address != 0) give(thread, event, address, event.size);
            }
            own.reallocates = false;
            break;
        }
        case Kind::map:
            ++mapped;
            mapped_bytes += event.size;
            break;
        case Kind::stack: note_depth(its, event); break;
        default: break;
    }
    its.calls[static_cast<std::size_t>(kind) & 15].add(event.cost, weight);
}

void Account::give(std::uint32_t thread, const Event& event, std::uint64_t address,
                   std::uint64_t size) {
    Threadly& own = threadly_[thread];
    const std::uint64_t weight = weight_of(size);
    const Block block{size, weight, event.time, event.stack, thread, ++own.ordinal};
    // One that is still there was freed unseen.
    if (Block stale; blocks_.contains(address) && take(thread, event.time, address, stale))
        retire(stale, event.time);
    blocks_.insert({address, block});
    change_live(block, 1);
    StackAccount& one = stack(event.stack);
    one.count += weight;
    one.bytes += size * weight;
    one.least = std::min(one.least, size);
    one.most = std::max(one.most, size);
    if (event.cost != 0) {
        one.sampled_ticks += event.cost * weight;
        one.sampled_calls += weight;
    }
    count += weight;
    bytes += size * weight;
    threads[thread].bytes += size * weight;
    sizes[power(size)] += weight;
    if (size < exact_sizes) exact[size] += weight;
    std::unique_ptr<Spread>& spread = spreads[event.stack];
    if (spread == nullptr) spread = std::make_unique<Spread>();
    spread->sizes[power(size)] += static_cast<std::uint32_t>(weight);
    const std::size_t step = step_at(event.time);
    timeline.count[step] += weight;
    timeline.bytes[step] += size * weight;
    note_peak(event.time);
}

// Out of the live ones: from here on it is nobody's.
bool Account::take(std::uint32_t thread, std::uint64_t time, std::uint64_t address, Block& taken) {
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) {
        ++unknown_frees;
        return false;
    }
    taken = found->second;
    blocks_.erase(found);
    change_live(taken, -1);
    step_at(time);
    if (taken.thread != thread) ++threads[thread].foreign_frees;
    return true;
}

void Account::put_back(std::uint64_t address, const Block& block) {
    blocks_.insert({address, block});
    change_live(block, 1);
}

void Account::retire(const Block& block, std::uint64_t time) {
    StackAccount& one = stack(block.stack);
    const std::uint64_t lifetime = time > block.time ? time - block.time : 0;
    one.lifetime += lifetime * block.weight;
    one.shortest = std::min(one.shortest, lifetime);
    one.longest = std::max(one.longest, lifetime);
    if (Spread* spread = spreads[block.stack].get())
        spread->lifetimes[power(lifetime >> time_shift)] +=
            static_cast<std::uint32_t>(block.weight);
    frees += block.weight;
    lifetimes[power(lifetime >> time_shift)][power(block.size)] += block.weight;
}

void Account::finish() {
    for (StackAccount& one : stacks) note(one);
    while (step_ + 1 < timeline.live.size()) timeline.live[++step_] = before_;
    if (groups_ != nullptr) groups_->finish();
}

}  // namespace assay::heap
