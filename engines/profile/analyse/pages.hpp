// What is lost to fragmentation: pages that cannot be given back, because a few blocks on them live
// on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "profile/analyse/account.hpp"

namespace assay::heap {

// Of one moment.
struct Pages {
    static constexpr std::size_t tenths = 10;

    std::uint64_t time = 0, resident = 0, live = 0;  // ticks; bytes of the process; requested bytes
    std::uint64_t pages = 0;                         // that hold live blocks
    std::array<std::uint64_t, tenths> filled{};      // pages by the share of them that is requested
    struct Pin {
        std::uint32_t stack;
        std::uint64_t bytes,
            blocks;  // empty bytes of its pages, its part of them; blocks on such pages
    };
    std::vector<Pin> pins;  // most bytes first, the first few
};

// By the addresses of the live blocks; a packed trace has none, and `pages` is then 0.
Pages look_at_pages(const Blocks& blocks, std::uint64_t page_bytes);

}  // namespace assay::heap
