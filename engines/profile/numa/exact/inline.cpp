// The functions that code instrumented by the LLVM pass calls where inline counting does not
// suffice: the first access to a page, and ranges of several pages.
#include "profile/numa/exact/runtime.hpp"

#define HOOK extern "C" __attribute__((visibility("default")))

using namespace assay::numa;

namespace assay::numa {
namespace {

inline std::uint32_t shadow_value(ThreadCounts& counts, std::uint64_t address, std::uint32_t site,
                                  bool write) {
    const std::uint32_t value = shadow()[address >> page_bits];
    if (__builtin_expect(value != 0, 1)) return value;
    return enter_page(address, write, first_site_stack + site, counts);
}

inline std::uint64_t counter(const ThreadCounts& counts, std::uint32_t value) {
    return std::uint64_t{value} * 8 + counts.nodes[*counts.processor % max_processors];
}

// The sites of an access: `packed_count` is twice their number, plus 1 for a write.
struct Sites {
    std::uint32_t first, packed_count;
    bool write() const { return packed_count % 2 != 0; }
    std::uint32_t count() const { return packed_count / 2; }
};

inline void add_accesses(ThreadCounts& counts, std::uint64_t counter, std::uint64_t accesses,
                         Sites sites) {
    counts.values[counter] += accesses * sites.count();
    std::uint64_t* cell =
        counts.sites + std::uint64_t{sites.first} * site_counters + counter % site_counters;
    for (std::uint32_t k = 0; k < sites.count(); ++k)
        cell[std::size_t{k} * site_counters] += accesses;
}

}  // namespace
}  // namespace assay::numa

HOOK ThreadCounts* __assay_numa_thread() { return __assay_numa_own = add_thread(); }

HOOK void __assay_numa_count(ThreadCounts* counts, std::uint64_t address, std::uint64_t accesses,
                             std::uint32_t site, std::uint32_t packed_count) {
    if (accesses == 0) return;
    const Sites sites{site, packed_count};
    const std::uint32_t value = shadow_value(*counts, address, site, sites.write());
    add_accesses(*counts, counter(*counts, value), accesses, sites);
}

// Counts `count` accesses to address, address + step, ... in bytes.
HOOK void __assay_numa_range(ThreadCounts* counts, std::uint64_t address, std::int64_t step,
                             std::uint64_t count, std::uint32_t site, std::uint32_t packed_count) {
    if (step == 0) return __assay_numa_count(counts, address, count, site, packed_count);
    const Sites sites{site, packed_count};
    if (step < 0) {
        address += static_cast<std::uint64_t>(step) * (count - 1);
        step = -step;
    }
    const auto stride = static_cast<std::uint64_t>(step);
    const bool is_power_of_two = (stride & (stride - 1)) == 0;
    const unsigned shift = is_power_of_two ? static_cast<unsigned>(__builtin_ctzll(stride)) : 0;
    // The number of addresses within `bytes` (at most a page), the first at offset 0.
    const auto addresses_within = [&](std::uint64_t bytes) -> std::uint64_t {
        if (stride >= page_bytes) return 1;
        if (is_power_of_two) return (bytes + stride - 1) >> shift;
        return static_cast<std::uint32_t>(bytes + stride - 1) / static_cast<std::uint32_t>(stride);
    };
    // `accesses` are not added to `pending_counter` yet.
    std::uint64_t pending_counter = 0, accesses = 0;
    while (count > 0) {
        std::uint64_t accesses_in_page = addresses_within(page_bytes - address % page_bytes);
        if (accesses_in_page > count) accesses_in_page = count;
        const std::uint64_t page_counter =
            counter(*counts, shadow_value(*counts, address, site, sites.write()));
        if (page_counter != pending_counter && accesses > 0) {
            add_accesses(*counts, pending_counter, accesses, sites);
            accesses = 0;
        }
        pending_counter = page_counter;
        accesses += accesses_in_page;
        address += accesses_in_page * stride;
        count -= accesses_in_page;
    }
    if (accesses > 0) add_accesses(*counts, pending_counter, accesses, sites);
}
