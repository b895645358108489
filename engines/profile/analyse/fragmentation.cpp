// Measures how full the pages of live blocks are, and which stacks keep partly empty pages.
#include "profile/analyse/fragmentation.hpp"

#include <algorithm>

namespace assay::heap {
namespace {

constexpr std::size_t max_pins = 50;

// Calls visit(page, bytes of the block on it) for the first and the last page of a block, which it
// may share with other blocks. The pages between belong to the block alone.
template <class Visit>
void for_each_shared_page(std::uint64_t address, std::uint64_t size, std::uint64_t page_bytes,
                          Visit visit) {
    const std::uint64_t first = address / page_bytes, last = (address + size - 1) / page_bytes;
    if (first == last) {
        visit(first, size);
        return;
    }
    visit(first, (first + 1) * page_bytes - address);
    visit(last, address + size - last * page_bytes);
}

}  // namespace

Fragmentation measure_fragmentation(const Blocks& blocks, std::uint64_t page_bytes) {
    Fragmentation fragmentation;
    // Requested bytes by shared page.
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash> used_by_page;
    for (const auto& [address, block] : blocks) {
        fragmentation.live += block.size;
        if (is_block_id(address) || block.size == 0) continue;
        for_each_shared_page(
            address, block.size, page_bytes,
            [&](std::uint64_t number, std::uint64_t bytes) { used_by_page[number] += bytes; });
        const std::uint64_t first = address / page_bytes,
                            last = (address + block.size - 1) / page_bytes;
        const std::uint64_t inner_pages = last > first ? last - first - 1 : 0;
        fragmentation.pages += inner_pages;
        fragmentation.filled[Fragmentation::tenths - 1] += inner_pages;
    }
    fragmentation.pages += used_by_page.size();
    for (const auto& [number, bytes] : used_by_page)
        ++fragmentation.filled[std::min<std::uint64_t>(Fragmentation::tenths - 1,
                                                       bytes * Fragmentation::tenths / page_bytes)];
    tsl::robin_map<std::uint32_t, Fragmentation::Pin> pins;
    for (const auto& [address, block] : blocks) {
        if (is_block_id(address) || block.size == 0) continue;
        double empty_bytes = 0;
        for_each_shared_page(
            address, block.size, page_bytes, [&](std::uint64_t number, std::uint64_t bytes) {
                const double used_bytes = static_cast<double>(used_by_page[number]);
                if (used_bytes < static_cast<double>(page_bytes))
                    empty_bytes += (static_cast<double>(page_bytes) - used_bytes) *
                                   static_cast<double>(bytes) / used_bytes;
            });
        if (empty_bytes <= 0) continue;
        Fragmentation::Pin& pin = pins[block.stack];
        pin.stack = block.stack;
        pin.bytes += static_cast<std::uint64_t>(empty_bytes);
        ++pin.blocks;
    }
    for (const auto& [stack, pin] : pins) fragmentation.pins.push_back(pin);
    std::ranges::sort(fragmentation.pins,
                      [](const Fragmentation::Pin& a, const Fragmentation::Pin& b) {
                          return std::pair(b.bytes, a.stack) < std::pair(a.bytes, b.stack);
                      });
    if (fragmentation.pins.size() > max_pins) fragmentation.pins.resize(max_pins);
    return fragmentation;
}

}  // namespace assay::heap
