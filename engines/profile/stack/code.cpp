// Decodes machine code around an address to find frame set-ups, function ends and calls.
#include "profile/stack/code.hpp"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "profile/stack/machine.hpp"

namespace assay::stack {
namespace {

// Reads `bytes` bytes of this process at `address`. Returns false if not all are readable.
bool read_code(std::uint64_t address, unsigned char* buffer, std::size_t bytes) {
    const int saved_errno = errno;
    const iovec local{buffer, bytes}, remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t bytes_read = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    errno = saved_errno;
    return bytes_read == static_cast<ssize_t>(bytes);
}

// push %rbp; mov %rsp,%rbp. The mov has two encodings: 48 89 e5 (compilers, assemblers), 48 8b ec
// (V8).
bool begins_frame(const unsigned char* code) {
    return code[0] == 0x55 && code[1] == 0x48 &&
           ((code[2] == 0x89 && code[3] == 0xe5) || (code[2] == 0x8b && code[3] == 0xec));
}

// A return, followed by the padding before the next function: int3, hlt or a long nop.
bool ends_function(const unsigned char* code) {
    const unsigned char* next = code[0] == 0xc3                   ? code + 1
                                : code[0] == 0xc2 && code[2] == 0 ? code + 3
                                                                  : nullptr;
    if (next == nullptr) return false;
    return (next[0] == 0xcc && next[1] == 0xcc) || (next[0] == 0xf4 && next[1] == 0xf4) ||
           (next[0] == 0x66 && next[1] == 0x2e && next[2] == 0x0f) ||
           (next[0] == 0x0f && next[1] == 0x1f);
}

}  // namespace

bool keeps_frame_pointer(std::uint64_t address) {
    if (!call_pushes_return_address) return false;
    // Code is read in blocks, which do not cross pages.
    constexpr std::size_t block_bytes = 1024, pattern_bytes = 6, max_distance = 32 << 10;
    unsigned char code[block_bytes + pattern_bytes] = {}, following[pattern_bytes] = {};
    for (std::uint64_t end = address; address - end < max_distance;) {
        const std::uint64_t begin = (end - 1) / block_bytes * block_bytes, bytes = end - begin;
        if (!read_code(begin, code, bytes)) return false;
        std::memcpy(code + bytes, following, pattern_bytes);
        for (std::size_t k = bytes; k-- > 0;) {
            if (begins_frame(code + k)) return true;
            if (ends_function(code + k)) return false;
        }
        std::memcpy(following, code, pattern_bytes);
        end = begin;
    }
    return false;
}

bool follows_call(std::uint64_t address) {
    constexpr std::size_t max_length = 7;
    // One byte more than is read, since is_call() may examine call[2] of a call of two bytes.
    unsigned char code[max_length + 1] = {};
    if (!read_code(address - max_length, code, max_length)) return false;
    const unsigned char* end = code + max_length;
    if (end[-5] == 0xe8) return true;
    // ff /2: the addressing mode determines the length (Intel's manual, volume 2, table 2-2).
    const auto is_call = [end](int length) {
        const unsigned char* call = end - length;
        if (call[0] != 0xff || (call[1] >> 3 & 7) != 2) return false;
        const int mode = call[1] >> 6, base = call[1] & 7;
        const bool has_sib = mode != 3 && base == 4;
        if (length < 2 + has_sib) return false;
        const bool is_absolute = mode == 0 && (has_sib ? call[2] & 7 : base) == 5;
        return length == 2 + has_sib + (mode == 1 ? 1 : mode == 2 || is_absolute ? 4 : 0);
    };
    return is_call(2) || is_call(3) || is_call(4) || is_call(6) || is_call(7);
}

}  // namespace assay::stack
