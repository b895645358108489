// What code that the LLVM pass has compiled calls where its own counting does not do: for a page
// that was not met yet, and for ranges of several pages.
#include "profile/numa/exact/runtime.hpp"

#define HOOK extern "C" __attribute__((visibility("default")))

using namespace assay::numa;

extern "C" {
// The thread's counters; null until its first access.
__attribute__((visibility("default"),
               tls_model("initial-exec"))) constinit thread_local ThreadCounts* __assay_numa_own =
    nullptr;
}

namespace assay::numa {
namespace {

inline std::uint32_t value_at(ThreadCounts& own, std::uint64_t address, std::uint32_t site,
                              bool write) {
    const std::uint32_t value = shadow()[address >> page_bits];
    if (__builtin_expect(value != 0, 1)) return value;
    return meet_page(address, write, static_stacks + site, own);
}

inline std::uint64_t counter(const ThreadCounts& own, std::uint32_t value) {
    return std::uint64_t{value} * 8 + own.nodes[*own.processor % max_processors];
}

// The sites of an access: `kinds` is twice their number, and one more if it writes.
struct Sites {
    std::uint32_t first, kinds;
    bool write() const { return kinds % 2 != 0; }
    std::uint32_t count() const { return kinds / 2; }
};

inline void add(ThreadCounts& own, std::uint64_t counter, std::uint64_t times, Sites sites) {
    own.values[counter] += times * sites.count();
    std::uint64_t* cell =
        own.sites + std::uint64_t{sites.first} * site_counters + counter % site_counters;
    for (std::uint32_t k = 0; k < sites.count(); ++k) cell[std::size_t{k} * site_counters] += times;
}

}  // namespace
}  // namespace assay::numa

HOOK ThreadCounts* __assay_numa_thread() { return __assay_numa_own = add_thread(); }

HOOK void __assay_numa_count(ThreadCounts* own, std::uint64_t address, std::uint64_t times,
                             std::uint32_t site, std::uint32_t kinds) {
    if (times == 0) return;
    const Sites sites{site, kinds};
    const std::uint32_t value = value_at(*own, address, site, sites.write());
    add(*own, counter(*own, value), times, sites);
}

// `count` accesses to address, address + step, ...
HOOK void __assay_numa_range(ThreadCounts* own, std::uint64_t address, std::int64_t step,
                             std::uint64_t count, std::uint32_t site, std::uint32_t kinds) {
    if (step == 0) return __assay_numa_count(own, address, count, site, kinds);
    const Sites sites{site, kinds};
    if (step < 0) {
        address += static_cast<std::uint64_t>(step) * (count - 1);
        step = -step;
    }
    const auto stride = static_cast<std::uint64_t>(step);
    const bool is_power = (stride & (stride - 1)) == 0;
    const unsigned shift = is_power ? static_cast<unsigned>(__builtin_ctzll(stride)) : 0;
    // How many of the addresses lie in `bytes`, which a page has at most; the first is at its
    // start.
    const auto addresses_in = [&](std::uint64_t bytes) -> std::uint64_t {
        if (stride >= page_bytes) return 1;
        if (is_power) return (bytes + stride - 1) >> shift;
        return static_cast<std::uint32_t>(bytes + stride - 1) / static_cast<std::uint32_t>(stride);
    };
    std::uint64_t same = 0, times = 0;  // `times` accesses belong to the counter `same`
    while (count > 0) {
        std::uint64_t here = addresses_in(page_bytes - address % page_bytes);
        if (here > count) here = count;
        const std::uint64_t found = counter(*own, value_at(*own, address, site, sites.write()));
        if (found != same && times > 0) {
            add(*own, same, times, sites);
            times = 0;
        }
        same = found;
        times += here;
        address += here * stride;
        count -= here;
    }
    if (times > 0) add(*own, same, times, sites);
}
