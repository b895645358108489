// Memory layout shared by the runtime of the exact modes and the code that the LLVM pass emits: the
// shadow memory of the pages, and the counters of a thread.
//
// The shadow holds four bytes a page: the node in the low three bits, above it the class, which is
// an object and one of its sixteen parts. 0 means that the page has not been accessed yet. Let v be
// the shadow value, n the node of the thread, s the number of the access site and t = 8 v + n. An
// access adds 1 to values[t] and to sites[64 s + t % 64].
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

}  // namespace assay::numa
