// Populates memory with system calls, which return an error where a store would raise SIGBUS.
#include "profile/stack/populate.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace assay::stack {
namespace {

constexpr std::uint64_t page_bytes = 4096;

std::uint64_t page_of(const void* address) {
    return reinterpret_cast<std::uint64_t>(address) & ~(page_bytes - 1);
}

}  // namespace

bool populate(void* address, std::size_t bytes) {
    constexpr int madv_populate_write = 23;  // Linux 5.14
    const std::uint64_t begin = page_of(address),
                        end = reinterpret_cast<std::uint64_t>(address) + bytes;
    int status = 0;
    do {
        status = madvise(reinterpret_cast<void*>(begin), end - begin, madv_populate_write);
    } while (status != 0 && errno == EINTR);
    if (status != 0 && errno == EINVAL) return populate_by_futex(address, bytes);
    return status == 0;
}

bool populate_by_futex(void* address, std::size_t bytes) {
    // The kernel adds no bits to a word of each page, atomically, and wakes no thread.
    constexpr int add_no_bits = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0);
    const std::uint64_t end = reinterpret_cast<std::uint64_t>(address) + bytes;
    for (std::uint64_t page = page_of(address); page < end; page += page_bytes)
        if (syscall(SYS_futex, page, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, nullptr, page,
                    add_no_bits) < 0)
            return false;
    return true;
}

std::uint64_t max_file_bytes() {
    rlimit limit{};
    const bool has_limit = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return has_limit ? limit.rlim_cur : ~std::uint64_t{0};
}

}  // namespace assay::stack
