// Reads /proc/PID/maps and /proc/PID/pagemap.
#include "profile/image/mappings.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace assay::image {
namespace {

constexpr std::uint64_t max_mapping_bytes = 256 << 20;  // limit of one mapping; the rest is omitted
constexpr std::uint64_t present_bit = std::uint64_t{1} << 63, entry_bytes = 8;
constexpr std::uint64_t pages_per_digit = 4;
constexpr std::uint64_t max_line_pages = 8192;  // their digits take half of a line's room

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

int ObjectMappings::next_character() {
    if (position_ == read_bytes_) {
        const long bytes_read = syscall(SYS_read, maps_, read_, sizeof read_);
        if (bytes_read <= 0) return -1;
        position_ = 0;
        read_bytes_ = static_cast<unsigned>(bytes_read);
    }
    return static_cast<unsigned char>(read_[position_++]);
}

std::uint64_t ObjectMappings::read_hexadecimal(int& end) {
    for (std::uint64_t value = 0;;) {
        end = next_character();
        if (end >= '0' && end <= '9') value = value * 16 + static_cast<std::uint64_t>(end - '0');
        else if (end >= 'a' && end <= 'f')
            value = value * 16 + static_cast<std::uint64_t>(end - 'a' + 10);
        else return value;
    }
}

// Reads lines up to the next writable mapping of an object. Returns false after the last.
bool ObjectMappings::read_mapping() {
    for (;;) {
        int c = 0;
        const std::uint64_t begin = read_hexadecimal(c);
        if (c != '-') return false;
        const std::uint64_t end = read_hexadecimal(c);
        char permissions[4] = {};
        for (char& permission : permissions) permission = static_cast<char>(next_character());
        // The offset, the device and the inode come before the path.
        for (int fields = 0; c >= 0 && c != '\n' && fields < 4; fields += c == ' ')
            c = next_character();
        while (c == ' ') c = next_character();
        if (c == '/') {
            object_bytes_ = 0;
            for (; c >= 0 && c != '\n'; c = next_character())
                if (object_bytes_ < sizeof object_) object_[object_bytes_++] = static_cast<char>(c);
        } else {
            // The anonymous mapping after an object's data is its .bss.
            const bool is_bss = c == '\n' && begin == object_end_ && object_bytes_ > 0;
            while (c >= 0 && c != '\n') c = next_character();
            if (!is_bss) continue;
        }
        object_end_ = end;
        if (permissions[1] != 'w' || permissions[3] != 'p' || begin >= end) continue;
        begin_ = begin;
        end_ = std::min(end, begin + max_mapping_bytes);
        return true;
    }
}

void ObjectMappings::add_hexadecimal(std::uint64_t value) {
    char digits[16];
    std::size_t n = 0;
    do digits[n++] = "0123456789abcdef"[value & 15];
    while ((value >>= 4) != 0);
    while (n > 0) line_[line_bytes_++] = digits[--n];
    line_[line_bytes_++] = ' ';
}

// A bit for each page, 1 if it is resident, as hexadecimal digits: four pages per digit, the first
// page in the lowest bit. Pages that cannot be read have no digit.
void ObjectMappings::add_pages(std::uint64_t begin, std::uint64_t end) {
    std::uint64_t entries[256];
    const std::size_t digits_begin = line_bytes_;
    for (std::uint64_t page = begin / page_bytes(), last = end / page_bytes(); page < last;) {
        const std::uint64_t wanted = std::min<std::uint64_t>(std::size(entries), last - page);
        const ssize_t n =
            pread(pagemap_, entries, wanted * entry_bytes, static_cast<off_t>(page * entry_bytes));
        const std::uint64_t count = n > 0 ? static_cast<std::uint64_t>(n) / entry_bytes : 0;
        for (std::uint64_t k = 0; k < count; k += pages_per_digit) {
            unsigned digit = 0;
            for (std::uint64_t bit = 0; bit < pages_per_digit && k + bit < count; ++bit)
                digit |= (entries[k + bit] & present_bit) != 0 ? 1u << bit : 0;
            line_[line_bytes_++] = "0123456789abcdef"[digit];
        }
        if (count < wanted) break;
        page += count;
    }
    if (line_bytes_ == digits_begin) line_[line_bytes_++] = '0';
    line_[line_bytes_++] = ' ';
}

std::string_view ObjectMappings::next() {
    if (begin_ == end_ && !read_mapping()) return {};
    const std::uint64_t end = std::min(end_, begin_ + max_line_pages * page_bytes());
    line_bytes_ = 0;
    add_hexadecimal(begin_);
    add_hexadecimal(end);
    add_pages(begin_, end);
    for (std::size_t k = 0; k < object_bytes_; ++k) line_[line_bytes_++] = object_[k];
    line_[line_bytes_++] = '\n';
    begin_ = end;
    return {line_, line_bytes_};
}

}  // namespace assay::image
