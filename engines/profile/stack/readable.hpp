// Checks that memory can be read before it is read: pointers found in a program may be stale.
//
// A page is asked for once, by a system call that copies from it and does nothing else (a tenth of
// a microsecond); later checks are a lookup of about a nanosecond. The answers are forgotten after
// each munmap and mremap, after each release of a large block, and when the program's break moves
// down. One per thread, in zeroed memory.
#pragma once

#include <cstdint>

namespace assay::stack {

class ReadablePages {
public:
    // Whether all of the bytes can be read.
    bool contain(std::uint64_t address, std::uint64_t bytes) {
        const std::uint64_t first = address >> page_bits, last = (address + bytes - 1) >> page_bits;
        if (__builtin_expect(first == last, 1)) return is_readable(first);
        if (last < first || last - first > max_range_pages) return false;
        for (std::uint64_t page = first; page <= last; ++page)
            if (!is_readable(page)) return false;
        return true;
    }
    // Forgets what memory may have been taken away since the last call. `program_break`: sbrk(0).
    // Returns whether there was anything to forget.
    bool sync(std::uint64_t program_break);

private:
    static constexpr unsigned page_bits = 12, table_bits = 9;
    static constexpr std::uint64_t max_range_pages = 1024;

    bool is_readable(std::uint64_t page) {
        std::uint64_t& known = pages_[(page * 0x9e3779b97f4a7c15ull) >> (64 - table_bits)];
        return __builtin_expect(known == page && page != 0, 1) || ask(page, known);
    }
    static bool ask(std::uint64_t page, std::uint64_t& known);

    std::uint64_t pages_[1 << table_bits];
    std::uint64_t program_break_;
    std::uint32_t unmap_count_;
};

}  // namespace assay::stack
