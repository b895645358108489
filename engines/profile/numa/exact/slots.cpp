// Counters of the gcc mode. Code counts inline in the slots of its sites (gcc/inline.s) and calls
// these functions if a slot counts for another page or node. The hash table of a thread takes the
// count of a slot that changes its key, and accesses that are not counted inline.
#include <pthread.h>

#include <atomic>

#include "profile/numa/exact/runtime.hpp"
#include "profile/numa/hooks/capture.hpp"

#define HOOK extern "C" __attribute__((visibility("default")))

namespace assay::numa {

extern "C" {
__attribute__((visibility("default"),
               tls_model("initial-exec"))) constinit thread_local ThreadCounts* __assay_numa_own =
    nullptr;
}

namespace {

constexpr std::uint64_t write_bit = std::uint64_t{1} << 63;  // in site_pcs
std::atomic<std::uint64_t> site_count{0};
// The instruction of each registered site, for all threads.
std::atomic<std::uint64_t>* site_pcs = nullptr;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// Where the code adds 1: its site's counts + 8 * index, relative to base.
struct Counter {
    std::uint64_t index, base;
};

struct SiteSlots {
    std::uint32_t keys[slots_per_site];
    std::uint64_t counts[slots_per_site];
};
static_assert(sizeof(SiteSlots) == site_slots_bytes);

SiteSlots* first_registered(ThreadCounts& counts) {
    return reinterpret_cast<SiteSlots*>(counts.slots) + max_unit_sites;
}
const SiteSlots* first_registered(const ThreadCounts& counts) {
    return reinterpret_cast<const SiteSlots*>(counts.slots) + max_unit_sites;
}

// The counter at an address outside of the slots.
Counter elsewhere(std::uint64_t* counter, std::uint64_t site_offset) {
    return {0,
            reinterpret_cast<std::uint64_t>(counter) - site_offset - offsetof(SiteSlots, counts)};
}

Counter find_counter(std::uint64_t page, std::uint64_t site_offset, std::uint64_t unit_base,
                     std::uint64_t pc, bool write) {
    if (__assay_numa_own == nullptr) __assay_numa_own = add_thread();
    ThreadCounts& counts = *__assay_numa_own;
    std::uint32_t value = shadow()[page];
    if (value == 0) value = enter_page(page << page_bits, write, pc, counts);
    const std::uint32_t key = value + counts.node_keys[*counts.processor % max_processors],
                        index = value % slots_per_site;
    const auto count_in_table = [&](std::uint64_t site_pc, std::uint32_t counted_key) {
        std::uint64_t* counter =
            find_or_add_counter(counts, site_pc, counted_key & ((1u << node_key_shift) - 1),
                                (counted_key >> node_key_shift) - 1, write);
        return counter != nullptr ? counter : &counts.overflow;
    };
    if (unit_base == slots_offset) return elsewhere(count_in_table(pc, key), site_offset);
    const std::uint64_t base = reinterpret_cast<std::uint64_t>(&counts) + unit_base;
    auto* site = reinterpret_cast<SiteSlots*>(base + site_offset);
    site_pcs[site - first_registered(counts)].store(pc | (write ? write_bit : 0),
                                                    std::memory_order_relaxed);
    if (site->keys[index] != key) {
        if (site->counts[index] != 0) *count_in_table(pc, site->keys[index]) += site->counts[index];
        site->counts[index] = 0;
        site->keys[index] = key;
    }
    return {index, base};
}

}  // namespace

std::uint64_t* find_or_add_counter(ThreadCounts& counts, std::uint64_t pc, std::uint32_t value,
                                   std::uint32_t thread_node, bool write) {
    if (counts.table == nullptr) return nullptr;
    std::uint64_t slot = table_slot(pc, value, thread_node);
    for (int probe = 0; probe < 256; ++probe, slot = (slot + 1) % (1u << table_bits)) {
        Entry& entry = counts.table[slot];
        if (entry.pc == 0) entry = {pc, value, thread_node, 0, 0};
        if (entry.pc == pc && entry.value == value && entry.thread_node == thread_node)
            return write ? &entry.writes : &entry.reads;
    }
    return nullptr;
}

bool Slots::next(Entry& entry) {
    const std::uint64_t end = site_count * slots_per_site;
    while (position_ < end) {
        const std::uint64_t number = position_ / slots_per_site, index = position_ % slots_per_site;
        ++position_;
        const SiteSlots& site = first_registered(counts_)[number];
        const std::uint64_t count = site.counts[index], pc = site_pcs[number];
        if (count == 0) continue;
        const bool write = (pc & write_bit) != 0;
        entry = {pc & ~write_bit, site.keys[index] & ((1u << node_key_shift) - 1),
                 (site.keys[index] >> node_key_shift) - 1, write ? 0 : count, write ? count : 0};
        return true;
    }
    return false;
}

}  // namespace assay::numa

using namespace assay::numa;

// Called for each compiled unit before its code runs. Returns the offset of its slots.
HOOK std::uint64_t __assay_numa_unit(std::uint64_t sites) {
    pthread_mutex_lock(&mutex);
    if (site_pcs == nullptr)
        site_pcs = static_cast<std::atomic<std::uint64_t>*>(
            map_zeroed(max_slot_sites * sizeof(std::uint64_t)));
    const std::uint64_t first = site_count;
    const bool fits = site_pcs != nullptr && sites <= max_slot_sites - first;
    if (fits) site_count = first + sites;
    pthread_mutex_unlock(&mutex);
    return slots_offset + (fits ? (max_unit_sites + first) * site_slots_bytes : 0);
}

#define PC (reinterpret_cast<std::uint64_t>(__builtin_return_address(0)) - 1)

HOOK Counter __assay_numa_read(std::uint64_t page, std::uint64_t site_offset,
                               std::uint64_t unit_base) {
    return find_counter(page, site_offset, unit_base, PC, false);
}
HOOK Counter __assay_numa_write(std::uint64_t page, std::uint64_t site_offset,
                                std::uint64_t unit_base) {
    return find_counter(page, site_offset, unit_base, PC, true);
}
