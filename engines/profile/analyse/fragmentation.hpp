// Fragmentation: pages that the allocator cannot give back because a few live blocks lie on them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profile/analyse/allocation_stats.hpp"

namespace assay::heap {

// The pages of a process at one moment.
struct Fragmentation {
    static constexpr std::size_t tenths = 10;

    std::uint64_t time = 0;                      // ticks
    std::uint64_t resident = 0;                  // bytes of the process
    std::uint64_t live = 0;                      // requested bytes
    std::uint64_t pages = 0;                     // that hold live blocks
    std::array<std::uint64_t, tenths> filled{};  // these pages, by the share that is requested
    // A stack whose blocks keep partly empty pages.
    struct Pin {
        std::uint32_t stack;
        std::uint64_t bytes;   // empty bytes of the pages, divided among their blocks by size
        std::uint64_t blocks;  // on such pages
    };
    std::vector<Pin> pins;  // the 50 largest, by bytes
};

// Needs the blocks' addresses: for a packed trace, which has none, `pages` is 0.
Fragmentation measure_fragmentation(const Blocks& blocks, std::uint64_t page_bytes);

}  // namespace assay::heap
