// Interposes the allocator's functions, mmap() and munmap(): the next ones in the search order do
// the work, and the tracker learns of blocks of `at_least` bytes and more. No argument, result or
// errno is changed.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>

#include "profile/numa/hooks/tracker.hpp"

namespace assay::numa {

constinit thread_local unsigned in_hook __attribute__((tls_model("initial-exec"))) = 0;
std::size_t at_least = 4096;

namespace {

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
enum class Resolving : int { no, now, done };
std::atomic<Resolving> resolving{Resolving::no};

// Serves what dlsym() itself allocates; its blocks are never freed.
alignas(16) char bootstrap[32 << 10];
std::atomic<std::size_t> bootstrap_used{0};

void* bootstrap_block(std::size_t bytes) {
    const std::size_t rounded = (bytes + 31) & ~std::size_t{15};
    const std::size_t offset = bootstrap_used.fetch_add(rounded);
    if (rounded < bytes || offset + rounded > sizeof bootstrap) return nullptr;
    memcpy(bootstrap + offset, &bytes, sizeof bytes);
    return bootstrap + offset + 16;
}
bool is_bootstrap(const void* p) { return p >= bootstrap && p < bootstrap + sizeof bootstrap; }

template <class F>
void find(F*& into, const char* name) {
    into = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

__attribute__((noinline)) bool resolve_now() {
    auto expected = Resolving::no;
    if (!resolving.compare_exchange_strong(expected, Resolving::now))
        return expected == Resolving::done;
    find(real.malloc, "malloc");
    find(real.calloc, "calloc");
    find(real.realloc, "realloc");
    find(real.free, "free");
    find(real.memalign, "memalign");
    find(real.aligned_alloc, "aligned_alloc");
    find(real.posix_memalign, "posix_memalign");
    find(real.valloc, "valloc");
    find(real.malloc_usable_size, "malloc_usable_size");
    find(real.mmap, "mmap");
    find(real.munmap, "munmap");
    find(real.mremap, "mremap");
    resolving.store(Resolving::done, std::memory_order_release);
    return true;
}

inline bool resolve() {
    return __builtin_expect(resolving.load(std::memory_order_acquire) == Resolving::done, 1) ||
           resolve_now();
}

// Runs `report` with the profiler's own calls left out, and errno kept.
template <class Report>
inline void report(Report report) {
    if (in_hook != 0) return;
    const int error = errno;
    ++in_hook;
    report();
    --in_hook;
    errno = error;
}

inline void* allocated(void* block, std::size_t bytes, const stack::Frame& caller) {
    if (__builtin_expect(block != nullptr && bytes >= at_least, 0))
        report([&] { track_allocation(block, bytes, caller); });
    return block;
}

inline bool is_tracked(void* block) {
    return in_hook == 0 && real.malloc_usable_size(block) >= at_least;
}

}  // namespace
}  // namespace assay::numa

using namespace assay::numa;
using assay::stack::Frame;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK void* malloc(size_t size) {
    if (!resolve()) return bootstrap_block(size);
    return allocated(real.malloc(size), size, ASSAY_CALLER());
}

ASSAY_HOOK void* calloc(size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return nullptr;
    }
    if (!resolve()) return bootstrap_block(bytes);
    return allocated(real.calloc(count, size), bytes, ASSAY_CALLER());
}

ASSAY_HOOK void free(void* block) {
    if (block == nullptr || is_bootstrap(block) || !resolve()) return;
    if (is_tracked(block)) report([&] { track_release(block); });
    real.free(block);
}

ASSAY_HOOK void* realloc(void* block, size_t size) {
    if (!resolve()) return bootstrap_block(size);
    if (is_bootstrap(block)) {
        size_t before = 0;
        memcpy(&before, static_cast<char*>(block) - 16, sizeof before);
        void* moved = real.malloc(size);
        if (moved != nullptr) memcpy(moved, block, before < size ? before : size);
        return moved;
    }
    // Another thread may get the old block before realloc() returns.
    const size_t before =
        block != nullptr && is_tracked(block) ? real.malloc_usable_size(block) : 0;
    if (before != 0) report([&] { track_release(block); });
    void* moved = real.realloc(block, size);
    if (moved == nullptr && size != 0) {
        allocated(block, before, ASSAY_CALLER());
        return nullptr;
    }
    return allocated(moved, size, ASSAY_CALLER());
}

ASSAY_HOOK void* memalign(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return allocated(real.memalign(alignment, size), size, ASSAY_CALLER());
}

ASSAY_HOOK void* aligned_alloc(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return allocated(real.aligned_alloc(alignment, size), size, ASSAY_CALLER());
}

ASSAY_HOOK int posix_memalign(void** block, size_t alignment, size_t size) {
    if (!resolve()) return ENOMEM;
    const int status = real.posix_memalign(block, alignment, size);
    if (status == 0) allocated(*block, size, ASSAY_CALLER());
    return status;
}

ASSAY_HOOK void* valloc(size_t size) {
    if (!resolve()) return nullptr;
    return allocated(real.valloc(size), size, ASSAY_CALLER());
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
ASSAY_HOOK void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
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
    void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
    va_end(arguments);
    if (!resolve()) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void* moved = real.mremap(old, old_bytes, bytes, flags, wanted);
    const Frame caller = ASSAY_CALLER();
    if (moved != MAP_FAILED)
        report([&] {
            track_unmapping(old, old_bytes);
            track_mapping(moved, bytes, caller);
        });
    return moved;
}
