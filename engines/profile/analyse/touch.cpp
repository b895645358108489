#include "profile/analyse/touch.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "profile/analyse/calls.hpp"

namespace assay::heap {
namespace {

// Of the system's libraries, and of our own hooks, which stand before an allocator's functions.
bool only_touches_for(const Place& place) {
    constexpr std::string_view runtime[] = {"libc.so",     "libc-",    "libstdc++.so",
                                            "libgcc_s.so", "ld-linux", "libassay-heap.so"};
    const std::string_view object =
        std::string_view(place.module).substr(place.module.rfind('/') + 1);
    return only_hands_on(place.function) ||
           std::ranges::any_of(runtime,
                               [&](std::string_view name) { return object.starts_with(name); });
}

}  // namespace

Place toucher(const Stand& stand, Symbols& symbols) {
    if (stand.pc >> 63 != 0) return {"(kernel, for the program)", "", 0, "", false};
    std::uint64_t at = stand.pc;
    for (std::size_t sp = 0; sp < stack_words;) {
        for (const Place& place : symbols.find(at))
            if (!only_touches_for(place)) return place;
        const auto up = symbols.return_at(at);
        if (!up || *up % sizeof stand.words[0] != 0) break;
        sp += *up / sizeof stand.words[0];
        if (sp >= stack_words || stand.words[sp] == 0) break;
        at = stand.words[sp++] - 1;  // of the call itself, not of what comes after it
    }
    return symbols.find(stand.pc).front();
}

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
        // At the bottom the page itself counts; further up only what is before the word that was
        // looked through.
        const int bits = static_cast<int>(page & 63) + (level == 0 ? 1 : 0);
        const std::uint64_t below = word == words_[static_cast<std::size_t>(level)].end() ? 0
                                    : bits == 64 ? word->second
                                                 : word->second & ((std::uint64_t{1} << bits) - 1);
        if (below != 0) {
            std::uint64_t at =
                (page >> 6 << 6) | static_cast<std::uint64_t>(63 - std::countl_zero(below));
            for (int down = level - 1; down >= 0; --down)
                at = at << 6 |
                     static_cast<std::uint64_t>(
                         63 - std::countl_zero(words_[static_cast<std::size_t>(down)].at(at)));
            found = at;
            return true;
        }
        page >>= 6;
    }
    return false;
}

void TouchAccount::note(std::uint32_t thread, const Event& event) {
    if (about_.touches.empty()) return;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event), page = address / page_;
    if (is_named(address)) return;
    const bool is_given = gives(kind, address, event.size);
    if (const auto found = unclaimed_.find(thread);
        found != unclaimed_.end() && !found->second.empty()) {
        if (is_given) claim(found->second, event);
        found->second.clear();
    }
    if (is_given) {
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
        if (found != blocks.end() && address >= found->first &&
            address - found->first < found->second.size)
            return found;
    }
    // A small one begins less than a page before; blocks begin at multiples of 16.
    for (std::uint64_t at = address & ~std::uint64_t{15}; at + page_ > address; at -= 16)
        if (const auto found = blocks.find(at); found != blocks.end())
            return address - at < found->second.size ? found : blocks.end();
    return blocks.end();
}

// What the allocator itself has touched of a block that it was about to give: calloc, realloc.
void TouchAccount::claim(const std::vector<std::size_t>& touches, const Event& event) {
    for (const std::size_t k : touches) {
        const Touch& touch = about_.touches[k];
        if (touch.address - address_of(event) >= event.size) continue;
        --outside;
        ++askers[event.stack];
        count(touch, {address_of(event), event.size, event.time}, event.stack);
    }
}

void TouchAccount::count(const Touch& touch, const Extent& block, std::uint32_t stack) {
    Count& count = stacks[stack];
    ++count.touches;
    const std::uint64_t region = touch.address / huge;
    const bool whole =
        region * huge >= block.first && (region + 1) * huge <= block.first + block.size;
    std::uint64_t& seen = huge_seen_[region];
    if (!whole || seen != block.time) ++count.with_huge;
    if (whole) seen = block.time;
}

void TouchAccount::pass(std::uint64_t time, const Blocks& blocks) {
    for (; next_ < about_.touches.size() && about_.touches[next_].time < time; ++next_) {
        const Touch& touch = about_.touches[next_];
        const auto thread = about_.threads.find(touch.tid);
        if (thread != about_.threads.end()) ++threads[thread->second];
        const auto block = block_at(touch.address, blocks);
        if (block == blocks.end()) {
            ++outside;
            if (thread != about_.threads.end()) unclaimed_[thread->second].push_back(next_);
            continue;
        }
        ++stands[touch.stand];
        count(touch, {block->first, block->second.size, block->second.time}, block->second.stack);
    }
}

}  // namespace assay::heap
