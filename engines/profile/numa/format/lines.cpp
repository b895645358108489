// Formats the rows of a recording as JSON, without allocating memory.
#include "profile/numa/format/lines.hpp"

#include <errno.h>
#include <unistd.h>

namespace assay::numa {

void Lines::flush() {
    std::size_t written = 0;
    while (written < used_ && !failed_) {
        const ssize_t n = ::write(fd_, buffer_ + written, used_ - written);
        if (n > 0) written += static_cast<std::size_t>(n);
        else if (errno != EINTR) failed_ = true;
    }
    used_ = 0;
}

void Lines::put(const char* bytes, std::size_t count) {
    while (count > 0) {
        if (used_ == sizeof buffer_) flush();
        const std::size_t room = sizeof buffer_ - used_, part = count < room ? count : room;
        std::memcpy(buffer_ + used_, bytes, part);
        used_ += part;
        bytes += part;
        count -= part;
    }
}

void Lines::add(std::uint64_t value) {
    char digits[20];
    char* begin = digits + sizeof digits;
    do *--begin = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    put(begin, static_cast<std::size_t>(digits + sizeof digits - begin));
}

void Lines::add(std::int64_t value) {
    if (value < 0) put("-", 1);
    add(value < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(value)
                  : static_cast<std::uint64_t>(value));
}

void Lines::add(const Text& text) {
    static const char hex[] = "0123456789abcdef";
    put("\"", 1);
    for (std::size_t k = 0; k < text.size; ++k) {
        const auto byte = static_cast<unsigned char>(text.data[k]);
        if (byte == '"' || byte == '\\') {
            const char escaped[2] = {'\\', static_cast<char>(byte)};
            put(escaped, 2);
        } else if (byte < 0x20 || byte > 0x7e) {
            const char escaped[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
            put(escaped, 6);
        } else {
            put(text.data + k, 1);
        }
    }
    put("\"", 1);
}

}  // namespace assay::numa
