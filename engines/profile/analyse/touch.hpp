// First touch: a page is given to a program when it is written to for the first time, and that is
// where the time goes that malloc itself has saved. Which thread and line has paid, for whose
// blocks, and what huge pages would have saved.
//
// Pages are mostly touched by memset(), memcpy(), read() and the like: the line is then that of
// their caller, as far out as the words of the stack reach that the kernel has told.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <tsl/robin_map.h>

#include "profile/analyse/about.hpp"
#include "profile/analyse/account.hpp"
#include "profile/trace/hash.hpp"

namespace assay::heap {

// Numbers of pages, with the largest one that is not above a given one: a tree of bits, 64 to a
// word.
class PageSet {
public:
    void insert(std::uint64_t page);
    void erase(std::uint64_t page);
    // False where there is none.
    bool last_until(std::uint64_t page, std::uint64_t& found) const;

private:
    static constexpr int levels = 9;  // of 6 bits each
    std::array<tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash>, levels> words_;
};

class TouchAccount {
public:
    struct Count {
        std::uint64_t touches = 0;
        std::uint64_t with_huge = 0;  // what would be left of them with huge pages
    };

    explicit TouchAccount(const About& about) : about_(about), page_(about.process.page_bytes) {}
    // Before an event of this time: the touches until then. `blocks` are the live ones.
    void pass(std::uint64_t time, const Blocks& blocks);
    // Blocks as they come and go; of every event.
    void note(std::uint32_t thread, const Event& event);

    std::unordered_map<std::uint32_t, Count> stacks;           // by who has asked for the block
    std::unordered_map<std::uint32_t, std::uint64_t> threads;  // by serial
    std::unordered_map<std::uint32_t, std::uint64_t> stands;   // by number: where the toucher stood
    std::unordered_map<std::uint32_t, std::uint64_t>
        askers;  // by stack: in the allocator, before it gave the block
    std::uint64_t outside =
        0;  // of any block: stacks, variables, code, blocks that were not recorded

private:
    static constexpr std::uint64_t huge = 2 << 20;

    struct Extent {
        std::uint64_t first, size, time;
    };

    void count(const Touch& touch, const Extent& block, std::uint32_t stack);
    void claim(const std::vector<std::size_t>& touches, const Event& event);
    Blocks::const_iterator block_at(std::uint64_t address, const Blocks& blocks) const;

    const About& about_;
    std::uint64_t page_;
    std::size_t next_ = 0;
    std::unordered_map<std::uint32_t, std::vector<std::size_t>>
        unclaimed_;  // touches since the thread's last event, by serial
    PageSet large_;  // where blocks begin that are at least a page
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash>
        large_at_;  // their addresses, by that page
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash>
        huge_seen_;  // when the block was asked for, by huge page
};

// Who has touched: the innermost that does not merely do so for its caller.
Place toucher(const Stand& stand, Symbols& symbols);

}  // namespace assay::heap
