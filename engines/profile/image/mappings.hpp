// Lists the writable mappings of a process's objects, and which of their pages are in memory.
//
// The recorder lists those of a running process, and a process lists its own when it ends, inside a
// hook. So nothing here allocates, locks or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace assay::image {

class ObjectMappings {
public:
    // Open descriptors of /proc/PID/maps and /proc/PID/pagemap, which stay open.
    ObjectMappings(int maps, int pagemap) : maps_(maps), pagemap_(pagemap) {}

    // The next line of a mappings chunk (trace/format.hpp); empty after the last. A mapping of many
    // pages has several lines. The line is valid until the next call.
    std::string_view next();

private:
    int next_character();
    std::uint64_t read_hexadecimal(int& end);
    bool read_mapping();
    void add_hexadecimal(std::uint64_t value);
    void add_pages(std::uint64_t begin, std::uint64_t end);

    static constexpr std::size_t max_path_bytes = 4096;

    int maps_, pagemap_;
    // The part of the current mapping that is not listed yet.
    std::uint64_t begin_ = 0, end_ = 0;
    std::uint64_t object_end_ = 0;  // of the last mapping of `object_`
    std::size_t object_bytes_ = 0, line_bytes_ = 0;
    unsigned position_ = 0, read_bytes_ = 0;
    char object_[max_path_bytes];  // its path
    char read_[2048];
    char line_[2 * max_path_bytes + 64];
};

}  // namespace assay::image
