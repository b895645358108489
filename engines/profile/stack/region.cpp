// Finds and caches the mappings of stacks from /proc/self/maps.
#include "profile/stack/region.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace assay::stack {

std::atomic<std::uint32_t> unmap_count{0};

namespace {

constexpr std::uint64_t page_bytes = 4096, max_bytes = 1 << 20;

// Reads /proc/self/maps with raw system calls, since the hooks must not allocate.
class Maps {
public:
    Maps()
        : fd_(static_cast<int>(
              syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC))) {}
    ~Maps() {
        if (fd_ >= 0) syscall(SYS_close, fd_);
    }
    Maps(const Maps&) = delete;
    Maps& operator=(const Maps&) = delete;

    // Reads the next mapping; `writable` means readable and writable. Returns false after the last.
    bool next(Bounds& mapping, bool& writable) {
        int c = 0;
        mapping.low = read_hexadecimal(c);
        if (c != '-') return false;
        mapping.high = read_hexadecimal(c);
        const int reads = next_character(), writes = next_character();
        writable = reads == 'r' && writes == 'w';
        while (c >= 0 && c != '\n') c = next_character();
        return true;
    }

private:
    int next_character() {
        if (position_ == end_) {
            const long bytes_read = fd_ < 0 ? 0 : syscall(SYS_read, fd_, buffer_, sizeof buffer_);
            if (bytes_read <= 0) return -1;
            position_ = 0;
            end_ = static_cast<unsigned>(bytes_read);
        }
        return static_cast<unsigned char>(buffer_[position_++]);
    }
    std::uint64_t read_hexadecimal(int& end) {
        for (std::uint64_t value = 0;;
             value =
                 value * 16 + static_cast<std::uint64_t>(end <= '9' ? end - '0' : end - 'a' + 10)) {
            end = next_character();
            if (!((end >= '0' && end <= '9') || (end >= 'a' && end <= 'f'))) return value;
        }
    }

    int fd_;
    unsigned position_ = 0, end_ = 0;
    char buffer_[2048];
};

}  // namespace

Bounds find_mapping(std::uint64_t sp) {
    Maps maps;
    Bounds mapping;
    for (bool writable = false; maps.next(mapping, writable);)
        if (sp >= mapping.low && sp < mapping.high) return writable ? mapping : Bounds{};
    return {};
}

Bounds Regions::bounds_above(std::uint64_t sp) {
    const int saved_errno = errno;
    if (const auto current_count = unmap_count.load(std::memory_order_acquire);
        current_count != unmap_count_) {
        unmap_count_ = current_count;
        std::fill_n(mappings_, max_mappings, Bounds{});
    }
    const auto part_above = [sp](const Bounds& bounds) {
        return Bounds{sp, std::min(bounds.high, sp + max_bytes)};
    };
    const auto is_mapped = [](const Bounds& bounds) {
        unsigned char resident[max_bytes / page_bytes + 2];
        const std::uint64_t begin = bounds.low / page_bytes * page_bytes;
        return mincore(reinterpret_cast<void*>(begin), bounds.high - begin, resident) == 0;
    };
    Bounds result;
    for (auto& mapping : mappings_)
        if (sp >= mapping.low && sp < mapping.high) {
            if (is_mapped(part_above(mapping))) result = part_above(mapping);
            else mapping = {};
        }
    if (result.high == 0) {
        if (const Bounds mapping = find_mapping(sp); mapping.high != 0) {
            mappings_[next_++ % max_mappings] = mapping;
            result = part_above(mapping);
        }
    }
    errno = saved_errno;
    return result;
}

}  // namespace assay::stack
