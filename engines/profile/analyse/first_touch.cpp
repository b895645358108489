// Attributes page faults to the touching code and to the blocks that they touch.
#include "profile/analyse/first_touch.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "profile/analyse/call_tree.hpp"

namespace assay::heap {
namespace {

// Whether a function touches memory on behalf of its caller: those of the runtime libraries, of
// allocators and of the profiler's hooks.
bool touches_for_caller(const Location& location) {
    constexpr std::string_view runtime[] = {"libc.so",     "libc-",    "libstdc++.so",
                                            "libgcc_s.so", "ld-linux", "libassay-heap.so"};
    const std::string_view object =
        std::string_view(location.module).substr(location.module.rfind('/') + 1);
    return is_allocator_function(location.function) ||
           std::ranges::any_of(runtime,
                               [&](std::string_view name) { return object.starts_with(name); });
}

}  // namespace

Location touching_location(const FaultSite& site, Symbols& symbols) {
    if (site.pc >> 63 != 0) return {"(kernel, for the program)", "", 0, "", false};
    std::uint64_t pc = site.pc;
    for (std::size_t sp = 0; sp < fault_stack_words;) {
        for (const Location& location : symbols.find(pc))
            if (!touches_for_caller(location)) return location;
        const auto offset = symbols.return_address_offset(pc);
        if (!offset || *offset % sizeof site.words[0] != 0) break;
        sp += *offset / sizeof site.words[0];
        if (sp >= fault_stack_words || site.words[sp] == 0) break;
        pc = site.words[sp++] - 1;  // an address within the call instruction
    }
    return symbols.find(site.pc).front();
}

void PageSet::insert(std::uint64_t page) {
    for (auto& level : bitmaps_) {
        std::uint64_t& bitmap = level[page >> 6];
        const bool was_empty = bitmap == 0;
        bitmap |= std::uint64_t{1} << (page & 63);
        if (!was_empty) return;
        page >>= 6;
    }
}

void PageSet::erase(std::uint64_t page) {
    for (auto& level : bitmaps_) {
        const auto bitmap = level.find(page >> 6);
        if (bitmap == level.end()) return;
        bitmap.value() &= ~(std::uint64_t{1} << (page & 63));
        if (bitmap.value() != 0) return;
        level.erase(bitmap);
        page >>= 6;
    }
}

bool PageSet::find_predecessor(std::uint64_t page, std::uint64_t& predecessor) const {
    for (int level = 0; level < levels; ++level) {
        const auto bitmap = bitmaps_[static_cast<std::size_t>(level)].find(page >> 6);
        // On the lowest level the page itself counts; on higher levels only bits before the bitmap
        // that was searched.
        const int bits = static_cast<int>(page & 63) + (level == 0 ? 1 : 0);
        const std::uint64_t below = bitmap == bitmaps_[static_cast<std::size_t>(level)].end() ? 0
                                    : bits == 64
                                        ? bitmap->second
                                        : bitmap->second & ((std::uint64_t{1} << bits) - 1);
        if (below != 0) {
            std::uint64_t member =
                (page >> 6 << 6) | static_cast<std::uint64_t>(63 - std::countl_zero(below));
            for (int down = level - 1; down >= 0; --down)
                member =
                    member << 6 |
                    static_cast<std::uint64_t>(
                        63 - std::countl_zero(bitmaps_[static_cast<std::size_t>(down)].at(member)));
            predecessor = member;
            return true;
        }
        page >>= 6;
    }
    return false;
}

void FirstTouchStats::add(std::uint32_t thread, const Event& event) {
    if (metadata_.page_faults.empty()) return;
    const Kind kind = kind_of(event);
    const std::uint64_t address = address_of(event), page = address / page_bytes_;
    if (is_block_id(address)) return;
    const bool allocates = is_allocation(kind, address, event.size);
    if (const auto faults = unattributed_.find(thread);
        faults != unattributed_.end() && !faults->second.empty()) {
        if (allocates) attribute_to_allocation(faults->second, event);
        faults->second.clear();
    }
    if (allocates) {
        if (event.size < page_bytes_) return;
        large_block_pages_.insert(page);
        large_addresses_[page] = address;
    } else if (kind == Kind::free || kind == Kind::realloc_from) {
        const auto block_address = large_addresses_.find(page);
        if (block_address == large_addresses_.end() || block_address->second != address) return;
        large_addresses_.erase(block_address);
        large_block_pages_.erase(page);
    }
}

Blocks::const_iterator FirstTouchStats::find_block(std::uint64_t address,
                                                   const Blocks& blocks) const {
    std::uint64_t page = 0;
    if (large_block_pages_.find_predecessor(address / page_bytes_, page)) {
        const auto block = blocks.find(large_addresses_.at(page));
        if (block != blocks.end() && address >= block->first &&
            address - block->first < block->second.size)
            return block;
    }
    // A small block begins less than a page before the address, at a multiple of 16.
    for (std::uint64_t begin = address & ~std::uint64_t{15}; begin + page_bytes_ > address;
         begin -= 16)
        if (const auto block = blocks.find(begin); block != blocks.end())
            return address - begin < block->second.size ? block : blocks.end();
    return blocks.end();
}

// Counts page faults inside calloc or realloc, in the block that the call then returns.
void FirstTouchStats::attribute_to_allocation(const std::vector<std::size_t>& faults,
                                              const Event& event) {
    for (const std::size_t k : faults) {
        const PageFault& fault = metadata_.page_faults[k];
        if (fault.address - address_of(event) >= event.size) continue;
        --outside;
        ++in_allocator[event.stack];
        count(fault, {address_of(event), event.size, event.time}, event.stack);
    }
}

void FirstTouchStats::count(const PageFault& fault, const Extent& block, std::uint32_t stack) {
    Count& count = stacks[stack];
    ++count.touches;
    const std::uint64_t region = fault.address / huge_page_bytes;
    const bool is_inside = region * huge_page_bytes >= block.address &&
                           (region + 1) * huge_page_bytes <= block.address + block.size;
    std::uint64_t& last_block = last_block_in_huge_page_[region];
    if (!is_inside || last_block != block.time) ++count.faults_with_huge_pages;
    if (is_inside) last_block = block.time;
}

void FirstTouchStats::advance_to(std::uint64_t time, const Blocks& blocks) {
    for (; next_ < metadata_.page_faults.size() && metadata_.page_faults[next_].time < time;
         ++next_) {
        const PageFault& fault = metadata_.page_faults[next_];
        const auto thread = metadata_.thread_of_tid.find(fault.tid);
        if (thread != metadata_.thread_of_tid.end()) ++faults_by_thread[thread->second];
        const auto block = find_block(fault.address, blocks);
        if (block == blocks.end()) {
            ++outside;
            if (thread != metadata_.thread_of_tid.end())
                unattributed_[thread->second].push_back(next_);
            continue;
        }
        ++faults_by_site[fault.site];
        count(fault, {block->first, block->second.size, block->second.time}, block->second.stack);
    }
}

}  // namespace assay::heap
