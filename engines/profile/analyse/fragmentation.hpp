// Fragmentation: pages that the allocator cannot return to the system because of a few live blocks.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profile/analyse/allocation_stats.hpp"

namespace assay::heap {

// The pages of a process at one point in time.
struct Fragmentation {
    static constexpr std::size_t tenths = 10;

    std::uint64_t time = 0;                      // ticks
    std::uint64_t resident = 0;                  // bytes of the process
    std::uint64_t live = 0;                      // requested bytes
    std::uint64_t pages = 0;                     // number of pages with live blocks
    std::array<std::uint64_t, tenths> filled{};  // number of these pages by used share, in tenths
    // A stack whose live blocks occupy ("pin") partly empty pages.
    struct Pin {
        std::uint32_t stack;
        std::uint64_t bytes;   // empty bytes of the pages, divided among their blocks by size
        std::uint64_t blocks;  // on such pages
    };
    std::vector<Pin> pins;  // the 50 largest, by bytes
};

// Requires block addresses. A packed trace has none; `pages` is then 0.
Fragmentation measure_fragmentation(const Blocks& blocks, std::uint64_t page_bytes);

}  // namespace assay::heap
