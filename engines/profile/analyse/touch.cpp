#include "profile/analyse/touch.hpp"

#include <bit>

namespace assay::heap {

void PageSet::insert(std::uint64_t page) {
    for (auto& level : words_) {
        std::uint64_t& word = level[page >> 6];
        const bool was_empty = word == 0;
        word |= std::uint64_t{1} << (page & 63);
        if (!was_empty) return;
        page >>= 6;
    }
}

void PageSet::erase(std::uint64_t page) {
    for (auto& level : words_) {
        const auto found = level.find(page >> 6);
        if (found == level.end()) return;
        found.value() &= ~(std::uint64_t{1} << (page & 63));
        if (found.value() != 0) return;
        level.erase(found);
        page >>= 6;
    }
}

bool PageSet::last_until(std::uint64_t page, std::uint64_t& found) const {
    for (int level = 0; level < levels; ++level) {
        const auto word = words_[static_cast<std::size_t>(level)].find(page >> 6);
        // At the bottom the page itself counts; further up only what is before the word that was looked through.
        const int bits = static_cast<int>(page & 63) + (level == 0 ? 1 : 0);
        const std::uint64_t below = word == words_[static_cast<std::size_t>(level)].end() ? 0
                                    : bits == 64                                          ? word->second
                                                                                          : word->second & ((std::uint64_t{1} << bits) - 1);
        if (below != 0) {
            std::uint64_t at = (page >> 6 << 6) | static_cast<std::uint64_t>(63 - std::countl_zero(below));
            for (int down = level - 1; down >= 0; --down)
                at = at << 6 | static_cast<std::uint64_t>(63 - std::countl_zero(words_[static_cast<std::size_t>(down)].at(at)));
            found = at;
            return true;
        }
        page >>= 6;
    }
    return false;
}

void TouchAccount::note(const Event& event) {
    if (about_.touches.empty()) return;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event), page = address / page_;
    if (is_named(address)) return;
    if (gives(kind, address, event.size)) {
        if (event.size < page_) return;
        large_.insert(page);
        large_at_[page] = address;
    } else if (kind == Kind::free || kind == Kind::realloc_from) {
        const auto known = large_at_.find(page);
        if (known == large_at_.end() || known->second != address) return;
        large_at_.erase(known);
        large_.erase(page);
    }
}

Blocks::const_iterator TouchAccount::block_at(std::uint64_t address, const Blocks& blocks) const {
    std::uint64_t page = 0;
    if (large_.last_until(address / page_, page)) {
        const auto found = blocks.find(large_at_.at(page));
        if (found != blocks.end() && address >= found->first && address - found->first < found->second.size) return found;
    }
    // A small one begins less than a page before; blocks begin at multiples of 16.
    for (std::uint64_t at = address & ~std::uint64_t{15}; at + page_ > address; at -= 16)
        if (const auto found = blocks.find(at); found != blocks.end()) return address - at < found->second.size ? found : blocks.end();
    return blocks.end();
}

void TouchAccount::pass(std::uint64_t time, const Blocks& blocks) {
    for (; next_ < about_.touches.size() && about_.touches[next_].time < time; ++next_) {
        const Touch& touch = about_.touches[next_];
        if (const auto thread = about_.threads.find(touch.tid); thread != about_.threads.end()) ++threads[thread->second];
        const auto block = block_at(touch.address, blocks);
        if (block == blocks.end()) {
            ++outside;
            continue;
        }
        ++instructions[touch.pc];
        Count& count = stacks[block->second.stack];
        ++count.touches;
        const std::uint64_t region = touch.address / huge;
        const bool whole = region * huge >= block->first && (region + 1) * huge <= block->first + block->second.size;
        std::uint64_t& seen = huge_seen_[region];
        if (!whole || seen != block->second.time) ++count.with_huge;
        if (whole) seen = block->second.time;
    }
}

}  // namespace assay::heap
