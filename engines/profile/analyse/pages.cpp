#include "profile/analyse/pages.hpp"

#include <algorithm>

namespace assay::heap {
namespace {

constexpr std::size_t most_pins = 50;

// The pages that a block shares with others are its first and its last; those between are its own.
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

Pages look_at_pages(const Blocks& blocks, std::uint64_t page) {
    Pages found;
    tsl::robin_map<std::uint64_t, std::uint32_t, NumberHash>
        used;  // requested bytes of shared pages
    for (const auto& [address, block] : blocks) {
        found.live += block.size;
        if (is_named(address) || block.size == 0) continue;
        for_shared_pages(address, block.size, page, [&](std::uint64_t number, std::uint64_t bytes) {
            used[number] += static_cast<std::uint32_t>(bytes);
        });
        const std::uint64_t first = address / page, last = (address + block.size - 1) / page;
        const std::uint64_t between = last > first ? last - first - 1 : 0;
        found.pages += between;
        found.filled[Pages::tenths - 1] += between;
    }
    found.pages += used.size();
    for (const auto& [number, bytes] : used)
        ++found.filled[std::min<std::uint64_t>(Pages::tenths - 1, bytes * Pages::tenths / page)];
    tsl::robin_map<std::uint32_t, Pages::Pin> pins;
    for (const auto& [address, block] : blocks) {
        if (is_named(address) || block.size == 0) continue;
        double empty = 0;
        for_shared_pages(address, block.size, page, [&](std::uint64_t number, std::uint64_t bytes) {
            const double there = used[number];
            if (there < static_cast<double>(page))
                empty += (static_cast<double>(page) - there) * static_cast<double>(bytes) / there;
        });
        if (empty <= 0) continue;
        Pages::Pin& pin = pins[block.stack];
        pin.stack = block.stack;
        pin.bytes += static_cast<std::uint64_t>(empty);
        ++pin.blocks;
    }
    for (const auto& [stack, pin] : pins) found.pins.push_back(pin);
    std::ranges::sort(found.pins, [](const Pages::Pin& a, const Pages::Pin& b) {
        return std::pair(b.bytes, a.stack) < std::pair(a.bytes, b.stack);
    });
    if (found.pins.size() > most_pins) found.pins.resize(most_pins);
    return found;
}

}  // namespace assay::heap
