#include "storage/store/progress.hpp"

#include <algorithm>

namespace assay::storage {

namespace {

// Of the record to which a counter of the rank points; without one: the end of time.
std::uint64_t sequence_at(const Store& store, std::uint32_t rank,
                          const std::atomic<std::uint64_t>& counter) {
    const auto& head = store.head(rank);
    for (;;) {
        const std::uint64_t position = counter.load(std::memory_order_acquire);
        if (position >= head.tail.load(std::memory_order_acquire)) return ~0ull;
        const std::uint64_t sequence = store.record(rank, position).sequence;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (head.first_record.load(std::memory_order_acquire) <= position)
            return sequence;  // else it was another's by then
    }
}

}  // namespace

// A write that begins from now on gets a later sequence than now; one that has begun says so.
std::uint64_t horizon(const Store& store) {
    std::uint64_t before = store.now();
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (const auto pending = store.head(rank).pending.load(std::memory_order_seq_cst))
            before = std::min(before, pending);
    return before;
}

Progress progress(const Store& store) {
    Progress now{};
    now.now = store.now();
    now.horizon = now.drained = now.oldest = horizon(store);
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        now.drained = std::min(now.drained, sequence_at(store, rank, head.drained));
        now.oldest = std::min(now.oldest, sequence_at(store, rank, head.first_record));
        if (const auto settling = head.settling.load(std::memory_order_seq_cst))
            now.drained = std::min(now.drained, settling);
    }
    now.failed = store.super().drain_failed.load();
    return now;
}

std::uint64_t oldest_but_of(const Store& store, std::uint32_t rank) {
    std::uint64_t oldest = ~0ull;
    for (std::uint32_t other = 0; other < store.ranks(); ++other)
        if (other != rank)
            oldest = std::min(oldest, sequence_at(store, other, store.head(other).first_record));
    return oldest;
}

}  // namespace assay::storage
