// Interposes the allocator's functions, mmap() and munmap(). The next definitions in the symbol
// search order do the work. The tracker is informed of blocks of at least `min_object_bytes`. No
// argument, result or errno changes.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdarg>

#include "profile/numa/hooks/tracker.hpp"

namespace assay::numa {

constinit thread_local unsigned in_hook __attribute__((tls_model("initial-exec"))) = 0;
std::size_t min_object_bytes = 4096;

namespace {

// The next definitions in the symbol search order.
struct Real {
    void* (*malloc)(size_t);
    void* (*calloc)(size_t, size_t);
    void* (*realloc)(void*, size_t);
    void (*free)(void*);
    void* (*memalign)(size_t, size_t);
    void* (*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void**, size_t, size_t);
    void* (*valloc)(size_t);
    size_t (*malloc_usable_size)(void*);
    void* (*mmap)(void*, size_t, int, int, int, off_t);
    int (*munmap)(void*, size_t);
    void* (*mremap)(void*, size_t, size_t, int, ...);
};
Real real;
enum class ResolveState : int { pending, running, done };
std::atomic<ResolveState> resolve_state{ResolveState::pending};

// Memory for allocations of dlsym() itself. Its blocks are never freed.
alignas(16) char bootstrap[32 << 10];
std::atomic<std::size_t> bootstrap_used{0};

void* allocate_bootstrap(std::size_t bytes) {
    const std::size_t rounded = (bytes + 31) & ~std::size_t{15};
    const std::size_t offset = bootstrap_used.fetch_add(rounded);
    if (rounded < bytes || offset + rounded > sizeof bootstrap) return nullptr;
    memcpy(bootstrap + offset, &bytes, sizeof bytes);
    return bootstrap + offset + 16;
}
bool is_bootstrap(const void* p) { return p >= bootstrap && p < bootstrap + sizeof bootstrap; }

template <class F>
void resolve_symbol(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

__attribute__((noinline)) bool resolve_functions() {
    auto expected = ResolveState::pending;
    if (!resolve_state.compare_exchange_strong(expected, ResolveState::running))
        return expected == ResolveState::done;
    resolve_symbol(real.malloc, "malloc");
    resolve_symbol(real.calloc, "calloc");
    resolve_symbol(real.realloc, "realloc");
    resolve_symbol(real.free, "free");
    resolve_symbol(real.memalign, "memalign");
    resolve_symbol(real.aligned_alloc, "aligned_alloc");
    resolve_symbol(real.posix_memalign, "posix_memalign");
    resolve_symbol(real.valloc, "valloc");
    resolve_symbol(real.malloc_usable_size, "malloc_usable_size");
    resolve_symbol(real.mmap, "mmap");
    resolve_symbol(real.munmap, "munmap");
    resolve_symbol(real.mremap, "mremap");
    resolve_state.store(ResolveState::done, std::memory_order_release);
    return true;
}

inline bool resolve() {
    return __builtin_expect(resolve_state.load(std::memory_order_acquire) == ResolveState::done,
                            1) ||
           resolve_functions();
}

// Runs `report` unless the profiler itself is the caller. Preserves errno.
template <class Report>
inline void report(Report report) {
    if (in_hook != 0) return;
    const int error = errno;
    ++in_hook;
    report();
    --in_hook;
    errno = error;
}

inline void* report_allocation(void* block, std::size_t bytes, const stack::Frame& caller) {
    if (__builtin_expect(block != nullptr && bytes >= min_object_bytes, 0))
        report([&] { track_allocation(block, bytes, caller); });
    return block;
}

inline bool is_tracked(void* block) {
    return in_hook == 0 && real.malloc_usable_size(block) >= min_object_bytes;
}

}  // namespace
}  // namespace assay::numa

using namespace assay::numa;
using assay::stack::Frame;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK void* malloc(size_t size) {
    if (!resolve()) return allocate_bootstrap(size);
    return report_allocation(real.malloc(size), size, ASSAY_CALLER());
}

ASSAY_HOOK void* calloc(size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return nullptr;
    }
    if (!resolve()) return allocate_bootstrap(bytes);
    return report_allocation(real.calloc(count, size), bytes, ASSAY_CALLER());
}

ASSAY_HOOK void free(void* block) {
    if (block == nullptr || is_bootstrap(block) || !resolve()) return;
    if (is_tracked(block)) report([&] { track_release(block); });
    real.free(block);
}

ASSAY_HOOK void* realloc(void* block, size_t size) {
    if (!resolve()) return allocate_bootstrap(size);
    if (is_bootstrap(block)) {
        size_t old_size = 0;
        memcpy(&old_size, static_cast<char*>(block) - 16, sizeof old_size);
        void* new_block = real.malloc(size);
        if (new_block != nullptr) memcpy(new_block, block, old_size < size ? old_size : size);
        return new_block;
    }
    // Another thread may get the old block before realloc() returns.
    const size_t old_size =
        block != nullptr && is_tracked(block) ? real.malloc_usable_size(block) : 0;
    if (old_size != 0) report([&] { track_release(block); });
    void* new_block = real.realloc(block, size);
    if (new_block == nullptr && size != 0) {
        report_allocation(block, old_size, ASSAY_CALLER());
        return nullptr;
    }
    return report_allocation(new_block, size, ASSAY_CALLER());
}

ASSAY_HOOK void* memalign(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return report_allocation(real.memalign(alignment, size), size, ASSAY_CALLER());
}

ASSAY_HOOK void* aligned_alloc(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return report_allocation(real.aligned_alloc(alignment, size), size, ASSAY_CALLER());
}

ASSAY_HOOK int posix_memalign(void** block, size_t alignment, size_t size) {
    if (!resolve()) return ENOMEM;
    const int status = real.posix_memalign(block, alignment, size);
    if (status == 0) report_allocation(*block, size, ASSAY_CALLER());
    return status;
}

ASSAY_HOOK void* valloc(size_t size) {
    if (!resolve()) return nullptr;
    return report_allocation(real.valloc(size), size, ASSAY_CALLER());
}

ASSAY_HOOK void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                      off_t offset) {
    if (!resolve()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void* mapped = real.mmap(address, bytes, protection, flags, fd, offset);
    const Frame caller = ASSAY_CALLER();
    if (mapped != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0)
        report([&] { track_mapping(mapped, bytes, caller); });
    return mapped;
}
ASSAY_HOOK void* mmap64(void*, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

ASSAY_HOOK int munmap(void* address, size_t bytes) {
    if (!resolve()) {
        errno = EINVAL;
        return -1;
    }
    report([&] { track_unmapping(address, bytes); });
    return real.munmap(address, bytes);
}

ASSAY_HOOK void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void* new_address = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
    va_end(arguments);
    if (!resolve()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void* moved = real.mremap(old, old_bytes, bytes, flags, new_address);
    const Frame caller = ASSAY_CALLER();
    if (moved != MAP_FAILED)
        report([&] {
            track_unmapping(old, old_bytes);
            track_mapping(moved, bytes, caller);
        });
    return moved;
}
