#include "storage/store/progress.hpp"

#include <algorithm>

namespace assay::storage {

namespace {

// The sequence of the record to which a counter of the rank points; 2^64 - 1: there is none.
std::uint64_t sequence_at(const Store& store, std::uint32_t rank,
                          const std::atomic<std::uint64_t>& counter) {
    const auto& head = store.head(rank);
    for (;;) {
        const std::uint64_t position = counter.load(std::memory_order_acquire);
        if (position >= head.tail.load(std::memory_order_acquire)) return ~0ull;
        const std::uint64_t sequence = store.record(rank, position).sequence;
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (head.first_record.load(std::memory_order_acquire) <= position)
            return sequence;  // else the slot was reused meanwhile
    }
}

}  // namespace

// A write that begins later gets a later sequence; one that has begun has set `pending`.
std::uint64_t horizon(const Store& store) {
    std::uint64_t before = store.now();
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (const auto pending = store.head(rank).pending.load(std::memory_order_seq_cst))
            before = std::min(before, pending);
    return before;
}

Progress progress(const Store& store) {
    Progress result{};
    result.now = store.now();
    result.horizon = result.drained = result.oldest = horizon(store);
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        result.drained = std::min(result.drained, sequence_at(store, rank, head.drained));
        result.oldest = std::min(result.oldest, sequence_at(store, rank, head.first_record));
        if (const auto resolving = head.resolving.load(std::memory_order_seq_cst))
            result.drained = std::min(result.drained, resolving);
    }
    result.failed = store.superblock().drain_failed.load();
    return result;
}

std::uint64_t oldest_except(const Store& store, std::uint32_t rank) {
    std::uint64_t oldest = ~0ull;
    for (std::uint32_t other = 0; other < store.ranks(); ++other)
        if (other != rank)
            oldest = std::min(oldest, sequence_at(store, other, store.head(other).first_record));
    return oldest;
}

}  // namespace assay::storage
