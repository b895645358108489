// First touches: the kernel maps a page at its first access, which costs a page fault. This counts
// the page faults by thread, by line and by the stack that allocated the touched block, and how
// many would remain with huge pages.
//
// Most pages are touched by memset(), memcpy(), read() and the like. The fault is then attributed
// to their caller, as far as the recorded stack words reach.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <tsl/robin_map.h>

#include "profile/analyse/allocation_stats.hpp"
#include "profile/analyse/metadata.hpp"
#include "profile/trace/hash.hpp"

namespace assay::heap {

// A set of page numbers with predecessor search: a tree of 64-bit bitmaps.
class PageSet {
public:
    void insert(std::uint64_t page);
    void erase(std::uint64_t page);
    // Sets `predecessor` to the largest member that is <= page. Returns false if there is none.
    bool find_predecessor(std::uint64_t page, std::uint64_t& predecessor) const;

private:
    static constexpr int levels = 9;  // of 6 bits each
    std::array<tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash>, levels> bitmaps_;
};

class FirstTouchStats {
public:
    struct Count {
        std::uint64_t touches = 0;
        std::uint64_t faults_with_huge_pages = 0;  // page faults that would remain with huge pages
    };

    explicit FirstTouchStats(const TraceMetadata& metadata)
        : metadata_(metadata), page_bytes_(metadata.process.page_bytes) {}
    // Counts the page faults before `time`. `blocks` are the blocks that are live then.
    void advance_to(std::uint64_t time, const Blocks& blocks);
    // Adds an event. Call advance_to() with its time first.
    void add(std::uint32_t thread, const Event& event);

    std::unordered_map<std::uint32_t, Count> stacks;  // by allocating stack
    std::unordered_map<std::uint32_t, std::uint64_t>
        faults_by_thread;  // page faults by serial number
    std::unordered_map<std::uint32_t, std::uint64_t> faults_by_site;  // by index of the FaultSite
    // By stack: page faults within an allocation call, in the block that it then returned.
    std::unordered_map<std::uint32_t, std::uint64_t> in_allocator;
    // Page faults outside of recorded blocks: stacks, variables, code, unrecorded blocks.
    std::uint64_t outside = 0;

private:
    static constexpr std::uint64_t huge_page_bytes = 2 << 20;  // bytes

    struct Extent {
        std::uint64_t address, size, time;
    };

    void count(const PageFault& fault, const Extent& block, std::uint32_t stack);
    void attribute_to_allocation(const std::vector<std::size_t>& faults, const Event& event);
    Blocks::const_iterator find_block(std::uint64_t address, const Blocks& blocks) const;

    const TraceMetadata& metadata_;
    std::uint64_t page_bytes_;  // bytes
    std::size_t next_ = 0;      // index of the next page fault to count
    // By thread: faults outside of blocks since the thread's last event.
    std::unordered_map<std::uint32_t, std::vector<std::size_t>> unattributed_;
    PageSet large_block_pages_;  // first pages of blocks of a page and more
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash> large_addresses_;  // by that page
    // The block that was touched last in a huge page, by huge page. A block is identified by its
    // allocation time.
    tsl::robin_map<std::uint64_t, std::uint64_t, NumberHash> last_block_in_huge_page_;
};

// The innermost location of a page fault that does not touch memory on behalf of its caller.
Location touching_location(const FaultSite& site, Symbols& symbols);

}  // namespace assay::heap
