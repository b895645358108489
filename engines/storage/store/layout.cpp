// Divides the bytes of a store among its ranks, and those of a rank between records and data.
#include "storage/store/layout.hpp"

#include <algorithm>

namespace assay::storage {
namespace {

constexpr std::uint64_t data_bytes_per_record = 8192;
constexpr std::uint64_t min_records = 1u << 16;

}  // namespace

StoreLayout StoreLayout::fit(std::size_t bytes, std::uint32_t ranks) {
    StoreLayout layout{ranks, min_records, 0};
    if (bytes <= ranks_offset()) return layout;
    const std::uint64_t rank_bytes = (bytes - ranks_offset()) / ranks / page * page;
    if (rank_bytes > rank_overhead())
        layout.record_slots =
            std::max(min_records, rank_bytes / (data_bytes_per_record + sizeof(Record)) / 64 * 64);
    const std::uint64_t overhead = rank_overhead() + layout.record_slots * sizeof(Record);
    layout.ring_bytes = rank_bytes > overhead ? (rank_bytes - overhead) / page * page : 0;
    return layout;
}

}  // namespace assay::storage
