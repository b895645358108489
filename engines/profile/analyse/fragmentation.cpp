#include "profile/analyse/fragmentation.hpp"

#include <algorithm>

namespace assay::heap {
namespace {

constexpr std::size_t max_pins = 50;

// A block shares its first and its last page with other blocks; the pages between are its own.
template <class Visit>
void for_shared_pages(std::uint64_t address, std::uint64_t size, std::uint64_t page, Visit visit) {
    const std::uint64_t first = address / page, last = (address + size - 1) / page;
    if (first == last) {
        visit(first, size);
        return;
    }
    visit(first, (first + 1) * page - address);
    visit(last, address + size - last * page);
}

}  // namespace

Fragmentation measure_fragmentation(const Blocks& blocks, std::uint64_t page) {
    Fragmentation fragmentation;
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash>
        page_bytes_used;  // requested bytes by shared page
    for (const auto& [address, block] : blocks) {
        fragmentation.live += block.size;
        if (is_block_id(address) || block.size == 0) continue;
        for_shared_pages(address, block.size, page, [&](std::uint64_t number, std::uint64_t bytes) {
            page_bytes_used[number] += bytes;
        });
        const std::uint64_t first = address / page, last = (address + block.size - 1) / page;
        const std::uint64_t inner_pages = last > first ? last - first - 1 : 0;
        fragmentation.pages += inner_pages;
        fragmentation.filled[Fragmentation::tenths - 1] += inner_pages;
    }
    fragmentation.pages += page_bytes_used.size();
    for (const auto& [number, bytes] : page_bytes_used)
        ++fragmentation.filled[std::min<std::uint64_t>(Fragmentation::tenths - 1,
                                                       bytes * Fragmentation::tenths / page)];
    tsl::robin_map<std::uint32_t, Fragmentation::Pin> pins;
    for (const auto& [address, block] : blocks) {
        if (is_block_id(address) || block.size == 0) continue;
        double empty = 0;
        for_shared_pages(address, block.size, page, [&](std::uint64_t number, std::uint64_t bytes) {
            const double in_use = static_cast<double>(page_bytes_used[number]);
            if (in_use < static_cast<double>(page))
                empty += (static_cast<double>(page) - in_use) * static_cast<double>(bytes) / in_use;
        });
        if (empty <= 0) continue;
        Fragmentation::Pin& pin = pins[block.stack];
        pin.stack = block.stack;
        pin.bytes += static_cast<std::uint64_t>(empty);
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
