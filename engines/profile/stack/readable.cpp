// Asks the kernel whether a page can be read, and forgets pages that may be gone.
#include "profile/stack/readable.hpp"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "profile/stack/region.hpp"

namespace assay::stack {

// The kernel reads the set of signals before it refuses the invalid operation, so the mask stays as
// it is. Unlike process_vm_readv, no container forbids the call.
bool ReadablePages::ask(std::uint64_t page, std::uint64_t& known) {
    constexpr int invalid_operation = -1;
    constexpr std::size_t signal_set_bytes = 8;
    const int saved_errno = errno;
    const long status = syscall(SYS_rt_sigprocmask, invalid_operation, page << page_bits, nullptr,
                                signal_set_bytes);
    const bool is_readable = page != 0 && status == -1 && errno == EINVAL;
    errno = saved_errno;
    if (is_readable) known = page;
    return is_readable;
}

bool ReadablePages::sync(std::uint64_t program_break) {
    const std::uint32_t count = unmap_count.load(std::memory_order_acquire);
    const bool is_stale = count != unmap_count_ || program_break < program_break_;
    unmap_count_ = count;
    program_break_ = program_break;
    if (is_stale) memset(pages_, 0, sizeof pages_);
    return is_stale;
}

}  // namespace assay::stack
