#include "profile/analyse/account.hpp"

#include <algorithm>
#include <bit>

namespace assay::heap {
namespace {

std::size_t power(std::uint64_t value) { return std::min<std::size_t>(powers - 1, value == 0 ? 0 : std::bit_width(value) - 1); }

}  // namespace

Account::Account(std::uint64_t first, std::uint64_t last, std::size_t steps, std::size_t count_of_stacks) : stacks(count_of_stacks) {
    timeline.first = first;
    timeline.step = std::max<std::uint64_t>(1, (last - first) / steps + 1);
    timeline.live.resize(steps);
    timeline.count.resize(steps);
    timeline.bytes.resize(steps);
}

// The step of a moment, with what is live now in it; steps that have passed without an event are as the last one left.
std::size_t Account::step_at(std::uint64_t time) {
    const std::uint64_t since = time > timeline.first ? time - timeline.first : 0;
    const std::size_t step = std::min<std::size_t>(since / timeline.step, timeline.live.size() - 1);
    while (step_ < step) timeline.live[++step_] = before_;
    timeline.live[step_] = std::max(timeline.live[step_], live);
    before_ = live;
    return step_;
}

StackAccount& Account::stack(std::uint32_t id) {
    if (id >= stacks.size()) stacks.resize(id + 1);
    return stacks[id];
}

// Before a stack's live bytes change: what they were at the process's last peak is what they are now, unless they
// have changed since.
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

void Account::add(std::uint32_t thread, const Event& event) {
    ++events;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event);
    threads[thread].calls[static_cast<std::size_t>(kind) & 15].add(event.cost);
    Block block{};
    switch (kind) {
        case Kind::malloc:
        case Kind::calloc:
        case Kind::memalign: give(thread, event, address, event.size); break;
        case Kind::free:
            ++stack(event.stack).frees;
            if (!take(thread, event.time, address, block)) break;
            retire(block, event.time);
            if (block.thread == thread && threadly_[thread].ordinal == block.ordinal) ++stack(block.stack).temporary;
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
        default: break;
    }
}

void Account::give(std::uint32_t thread, const Event& event, std::uint64_t address, std::uint64_t size) {
    Threadly& own = threadly_[thread];
    const Block block{size, event.time, event.stack, thread, ++own.ordinal};
    // One that is still there was freed unseen.
    if (Block stale; blocks_.contains(address) && take(thread, event.time, address, stale)) retire(stale, event.time);
    blocks_.insert({address, block});
    StackAccount& one = stack(event.stack);
    note(one);
    ++one.count;
    one.bytes += size;
    one.live += size;
    ++one.live_count;
    one.peak = std::max(one.peak, one.live);
    one.least = std::min(one.least, size);
    one.most = std::max(one.most, size);
    if (event.cost != 0) {
        one.cost += event.cost;
        ++one.costed;
    }
    ++count;
    bytes += size;
    live += size;
    ++live_count;
    threads[thread].bytes += size;
    ++sizes[power(size)];
    const std::size_t step = step_at(event.time);
    ++timeline.count[step];
    timeline.bytes[step] += size;
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
    StackAccount& one = stack(taken.stack);
    note(one);
    one.live -= taken.size;
    --one.live_count;
    live -= taken.size;
    --live_count;
    step_at(time);
    if (taken.thread != thread) ++threads[thread].foreign_frees;
    return true;
}

void Account::put_back(std::uint64_t address, const Block& block) {
    blocks_.insert({address, block});
    StackAccount& one = stack(block.stack);
    note(one);
    one.live += block.size;
    ++one.live_count;
    live += block.size;
    ++live_count;
}

void Account::retire(const Block& block, std::uint64_t time) {
    StackAccount& one = stack(block.stack);
    const std::uint64_t lifetime = time > block.time ? time - block.time : 0;
    one.lifetime += lifetime;
    ++frees;
    ++lifetimes[power(lifetime >> time_shift)][power(block.size)];
}

void Account::finish() {
    for (StackAccount& one : stacks) note(one);
    while (step_ + 1 < timeline.live.size()) timeline.live[++step_] = before_;
}

}  // namespace assay::heap
