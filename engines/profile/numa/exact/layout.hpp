// Memory layout shared by the runtime of the exact modes and the code that the LLVM pass emits: the
// shadow memory of the pages, and the counters of a thread.
//
// The shadow holds four bytes a page: the node in the low three bits, above it the class, which is
// an object and one of its sixteen parts. 0 means that the page has not been accessed yet. Let v be
// the shadow value, n the node of the thread, s the number of the access site and t = 8 v + n. An
// access adds 1 to values[t] and to sites[64 s + t % 64].
//
// Code that gcc has compiled counts in slots instead (gcc/inline.s): a site has a slot for each
// part of an object and node of a page, v % slots_per_site. Its key is v + node_keys[processor].
#pragma once

#include <cstdint>

namespace assay::numa {

inline constexpr std::uint64_t shadow_address = 0x200000000000, page_count = std::uint64_t{1} << 35;
inline constexpr unsigned page_bits = 12, page_bytes = 1 << page_bits;
inline constexpr unsigned node_bits = 3, unknown_node = 7, max_real_nodes = 7;
inline constexpr unsigned parts_per_object = 16, max_classes = 1 << 16;
inline constexpr unsigned max_sites = 1 << 16;
inline constexpr unsigned site_counters = 64;     // node of the page * 8 + node of the thread
inline constexpr unsigned max_processors = 4096;  // a power of two

// Offsets in a thread's counters. Offset 0 holds the address of the current processor's number.
inline constexpr std::uint64_t nodes_offset = 4096, values_offset = nodes_offset + max_processors,
                               value_counters = std::uint64_t{max_classes} << (node_bits + 3),
                               sites_offset = values_offset + 8 * value_counters;

// A site's slots are their keys, four bytes each, followed by their counts. The first
// max_unit_sites are those of units that are not registered; they stay empty.
inline constexpr unsigned slots_per_site = parts_per_object << node_bits,
                          site_slots_bytes = slots_per_site * (4 + 8), node_key_shift = 24;
inline constexpr std::uint64_t max_unit_sites = 1 << 18, max_slot_sites = 1 << 19;
inline constexpr std::uint64_t node_keys_offset = sites_offset + 8ull * max_sites * site_counters,
                               slots_offset = node_keys_offset + 4 * max_processors;
static_assert(node_keys_offset == 67117056 && slots_offset == 67133440 && site_slots_bytes == 1536,
              "as in gcc/inline.s");

}  // namespace assay::numa
