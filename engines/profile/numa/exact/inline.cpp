// What code that the LLVM pass has compiled calls: one access, or all accesses of a loop.
#include "profile/numa/exact/runtime.hpp"

namespace assay::numa {
namespace {

constinit thread_local ThreadCounts* own __attribute__((tls_model("initial-exec"))) = nullptr;
constexpr std::uint64_t static_stacks = 1 << 27;  // as in runtime.cpp
constexpr std::uint64_t page = 4096;

__attribute__((noinline, cold)) ThreadCounts* own_slowly() { return own = add_thread(); }

inline __attribute__((always_inline)) void add(ThreadCounts& counts, std::uint64_t address,
                                               std::uint64_t times, std::uint32_t site,
                                               bool write) {
    std::uint32_t value = shadow()[address >> 12];
    if (__builtin_expect(value == 0, 0))
        value = meet_page(address, write, static_stacks + site, counts);
    const unsigned on = thread_node();
    counts.sites[std::uint64_t{site} * site_counters + on * 8 + value % 8] += times;
    counts.values[std::uint64_t{value} * 8 + on] += times;
}

}  // namespace
}  // namespace assay::numa

using namespace assay::numa;

#define HOOK extern "C" __attribute__((visibility("default")))

HOOK void __assay_numa_count(std::uint64_t address, std::uint32_t site, std::uint32_t write) {
    ThreadCounts* counts = own;
    if (__builtin_expect(counts == nullptr, 0) && (counts = own_slowly()) == nullptr) return;
    add(*counts, address, 1, site, write != 0);
}

// `count` accesses to address, address + step, ...
HOOK void __assay_numa_range(std::uint64_t address, std::int64_t step, std::uint64_t count,
                             std::uint32_t site, std::uint32_t write) {
    ThreadCounts* counts = own;
    if (__builtin_expect(counts == nullptr, 0) && (counts = own_slowly()) == nullptr) return;
    if (step == 0) return add(*counts, address, count, site, write != 0);
    if (step < 0) {
        address += static_cast<std::uint64_t>(step) * (count - 1);
        step = -step;
    }
    const auto stride = static_cast<std::uint64_t>(step);
    while (count > 0) {
        const std::uint64_t room = page - address % page,
                            here = stride >= page ? 1 : (room + stride - 1) / stride,
                            times = here < count ? here : count;
        add(*counts, address, times, site, write != 0);
        address += times * stride;
        count -= times;
    }
}
