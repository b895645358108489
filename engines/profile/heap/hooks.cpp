// The functions that stand in front of the allocator's: each calls the real one and writes down
// what it did.
//
// The real ones are the next in the search order (dlsym RTLD_NEXT): glibc's, or those of an
// allocator that the program was linked with or preloads; in a process that was attached to, those
// that it has called until then. Until they are known, requests are served from a small arena that
// is never freed. No hook changes an argument, a result or errno.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>

#include "profile/heap/hooks.hpp"
#include "profile/heap/process.hpp"

namespace assay::heap {
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
    void* (*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void*);
    void* (*mmap)(void*, size_t, int, int, int, off_t);
    int (*munmap)(void*, size_t);
    void* (*mremap)(void*, size_t, size_t, int, ...);
    int (*brk)(void*);
    void* (*sbrk)(intptr_t);
    int (*dlclose)(void*);
    int (*pthread_getattr_np)(pthread_t, pthread_attr_t*);
    void (*_exit)(int);
};
Real real;

enum class Resolving : int { no, now, done };
std::atomic<Resolving> resolving{Resolving::no};

// For what dlsym itself asks for.
alignas(16) char early[64 << 10];
std::atomic<std::size_t> early_used{0};

void* early_block(size_t bytes) {
    const std::size_t whole =
        (bytes + 31) & ~std::size_t{15};  // a size before the block, for realloc
    const std::size_t at = early_used.fetch_add(whole);
    if (at + whole > sizeof early) return nullptr;
    memcpy(early + at, &bytes, sizeof bytes);
    return early + at + 16;
}
bool is_early(const void* p) { return p >= early && p < early + sizeof early; }

// find(where, name) for each.
template <class Find>
void find_all(Find find) {
    find(real.malloc, "malloc");
    find(real.calloc, "calloc");
    find(real.realloc, "realloc");
    find(real.free, "free");
    find(real.memalign, "memalign");
    find(real.aligned_alloc, "aligned_alloc");
    find(real.posix_memalign, "posix_memalign");
    find(real.valloc, "valloc");
    find(real.pvalloc, "pvalloc");
    find(real.malloc_usable_size, "malloc_usable_size");
    find(real.mmap, "mmap");
    find(real.munmap, "munmap");
    find(real.mremap, "mremap");
    find(real.brk, "brk");
    find(real.sbrk, "sbrk");
    find(real.dlclose, "dlclose");
    find(real.pthread_getattr_np, "pthread_getattr_np");
    find(real._exit, "_exit");
}

// False while this very thread (or another) is at it.
__attribute__((noinline)) bool resolve_now() {
    auto expected = Resolving::no;
    if (!resolving.compare_exchange_strong(expected, Resolving::now))
        return expected == Resolving::done;
    find_all([]<class F>(F*& into, const char* name) {
        into = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
    });
    resolving.store(Resolving::done, std::memory_order_release);
    return true;
}

// False when the real ones cannot be had yet: the request is then an early one.
inline bool resolve() {
    return __builtin_expect(resolving.load(std::memory_order_acquire) == Resolving::done, 1) ||
           resolve_now();
}

// A call that gives a block: timed now and then, then written down.
template <class Call>
__attribute__((always_inline)) inline void* giving(Kind kind, std::uint64_t size,
                                                   const assay::stack::Frame& caller, Call call) {
    Thread* thread = recording();
    if (thread == nullptr || !is_wanted(*thread, size)) return call();
    const std::uint64_t start = takes_cost(*thread) ? assay::stack::ticks() : 0;
    void* block = call();
    const std::uint64_t time = assay::stack::ticks();
    if (block == nullptr ||
        (__builtin_expect(filter.is_on, 0) && filter.sample != 0 && !taken.insert(block)))
        return block;
    if (record(*thread, time, kind, block, size, caller) && start != 0)
        record_cost(*thread, ticks_between(start, time));
    return block;
}

// Whether the block that is about to be given up has been recorded, as far as that can be told.
inline bool is_recorded(void* block) {
    if (__builtin_expect(!filter.is_on, 1)) return true;
    if (filter.sample != 0) return taken.erase(block);
    return real.malloc_usable_size == nullptr || real.malloc_usable_size(block) >= filter.at_least;
}

// Of what needs no hurry.
void note(Kind kind, const void* at, std::uint64_t bytes, const assay::stack::Frame& caller) {
    if (Thread* thread = recording())
        record(*thread, assay::stack::ticks(), kind, at, bytes, caller);
}

}  // namespace

void resolve_by(std::uint64_t (*address_of)(const char* name)) {
    find_all([=]<class F>(F*& into, const char* name) {
        into = reinterpret_cast<F*>(address_of(name));
    });
    resolving.store(Resolving::done, std::memory_order_release);
}

}  // namespace assay::heap

using namespace assay::heap;
using assay::stack::Frame;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK void* malloc(size_t size) {
    if (!resolve()) return early_block(size);
    return giving(Kind::malloc, size, ASSAY_CALLER(), [=] { return real.malloc(size); });
}

ASSAY_HOOK void* calloc(size_t count, size_t size) {
    size_t bytes = 0;
    if (!resolve())
        return __builtin_mul_overflow(count, size, &bytes) ? nullptr : early_block(bytes);
    const std::uint64_t asked = static_cast<std::uint64_t>(count) * size;
    return giving(Kind::calloc, asked, ASSAY_CALLER(), [=] { return real.calloc(count, size); });
}

ASSAY_HOOK void free(void* block) {
    if (block == nullptr || is_early(block) || !resolve()) return;
    Thread* thread = recording();
    if (thread == nullptr || !is_recorded(block)) return real.free(block);
    const std::uint64_t time = assay::stack::ticks();
    if (!record(*thread, time, Kind::free, block, 0, ASSAY_CALLER()) || !takes_cost(*thread))
        return real.free(block);
    const std::uint64_t start = assay::stack::ticks();
    real.free(block);
    record_cost(*thread, ticks_between(start, assay::stack::ticks()));
}

namespace {

void* reallocated(void* block, size_t size, const Frame& caller) {
    Thread* thread = recording();
    if (thread == nullptr) return real.realloc(block, size);
    if (!is_recorded(block))
        return giving(Kind::malloc, size, caller, [=] { return real.realloc(block, size); });
    // Two events: the old block may be another thread's before the new one is known here.
    const std::uint64_t start = assay::stack::ticks();
    assay::stack::StackId stack = assay::stack::no_stack;  // of both
    record(*thread, start, Kind::realloc_from, block, 0, caller,
           [&] { return stack = stack_of(*thread, caller); });
    const std::uint64_t called = takes_cost(*thread) ? assay::stack::ticks() : 0;
    void* moved = real.realloc(block, size);
    const std::uint64_t time = assay::stack::ticks();
    const bool failed = moved == nullptr && size != 0;
    // A sampled block is so until it is freed, whatever becomes of its size.
    if (filter.sample != 0 && (failed || moved != nullptr)) taken.insert(failed ? block : moved);
    if (record(*thread, time, Kind::realloc, failed ? block : moved,
               failed ? not_reallocated : size, caller, [=] { return stack; }) &&
        called != 0)
        record_cost(*thread, ticks_between(called, time));
    return moved;
}

// A block of the first moments that is to grow: moved to the real allocator.
void* adopted(void* block, size_t size, const Frame& caller) {
    size_t had = 0;
    memcpy(&had, static_cast<char*>(block) - 16, sizeof had);
    void* moved = giving(Kind::malloc, size, caller, [=] { return real.malloc(size); });
    if (moved != nullptr) memcpy(moved, block, had < size ? had : size);
    return moved;
}

}  // namespace

ASSAY_HOOK void* realloc(void* block, size_t size) {
    if (!resolve()) return block == nullptr ? early_block(size) : nullptr;
    const Frame caller = ASSAY_CALLER();
    if (block == nullptr)
        return giving(Kind::malloc, size, caller, [=] { return real.realloc(nullptr, size); });
    return is_early(block) ? adopted(block, size, caller) : reallocated(block, size, caller);
}

ASSAY_HOOK void* reallocarray(void* block, size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return nullptr;
    }
    if (!resolve()) return block == nullptr ? early_block(bytes) : nullptr;
    const Frame caller = ASSAY_CALLER();
    if (block == nullptr)
        return giving(Kind::malloc, bytes, caller, [=] { return real.realloc(nullptr, bytes); });
    return is_early(block) ? adopted(block, bytes, caller) : reallocated(block, bytes, caller);
}

ASSAY_HOOK void* memalign(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return giving(Kind::memalign, size, ASSAY_CALLER(),
                  [=] { return real.memalign(alignment, size); });
}

ASSAY_HOOK void* aligned_alloc(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return giving(Kind::memalign, size, ASSAY_CALLER(),
                  [=] { return real.aligned_alloc(alignment, size); });
}

ASSAY_HOOK int posix_memalign(void** into, size_t alignment, size_t size) {
    if (!resolve()) return ENOMEM;
    int status = 0;
    giving(Kind::memalign, size, ASSAY_CALLER(), [&]() -> void* {
        status = real.posix_memalign(into, alignment, size);
        return status == 0 ? *into : nullptr;
    });
    return status;
}

ASSAY_HOOK void* valloc(size_t size) {
    if (!resolve()) return nullptr;
    return giving(Kind::memalign, size, ASSAY_CALLER(), [=] { return real.valloc(size); });
}

ASSAY_HOOK void* pvalloc(size_t size) {
    if (!resolve()) return nullptr;
    return giving(Kind::memalign, size, ASSAY_CALLER(), [=] { return real.pvalloc(size); });
}

ASSAY_HOOK size_t malloc_usable_size(void* block) {
    if (block == nullptr || !resolve()) return 0;
    if (!is_early(block)) return real.malloc_usable_size(block);
    size_t had = 0;
    memcpy(&had, static_cast<char*>(block) - 16, sizeof had);
    return had;
}

ASSAY_HOOK void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (!resolve() || real.mmap == nullptr) return MAP_FAILED;
    void* mapped = real.mmap(at, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED) note(Kind::map, mapped, bytes, ASSAY_CALLER());
    return mapped;
}

ASSAY_HOOK void* mmap64(void*, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

ASSAY_HOOK int munmap(void* at, size_t bytes) {
    if (!resolve()) return -1;
    note(Kind::unmap, at, bytes, ASSAY_CALLER());
    const int status = real.munmap(at, bytes);
    assay::stack::unmap_count.fetch_add(1, std::memory_order_release);
    return status;
}

ASSAY_HOOK void* mremap(void* at, size_t old_bytes, size_t bytes, int flags, ...) {
    if (!resolve()) return MAP_FAILED;
    va_list rest;
    va_start(rest, flags);
    void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
    va_end(rest);
    note(Kind::unmap, at, old_bytes, ASSAY_CALLER());
    void* mapped = real.mremap(at, old_bytes, bytes, flags, wanted);
    assay::stack::unmap_count.fetch_add(1, std::memory_order_release);
    const bool failed = mapped == MAP_FAILED;
    note(Kind::map, failed ? at : mapped, failed ? old_bytes : bytes, ASSAY_CALLER());
    return mapped;
}

ASSAY_HOOK int brk(void* end) {
    if (!resolve() || real.brk == nullptr) return -1;
    const int status = real.brk(end);
    if (status == 0) note(Kind::brk, end, 0, ASSAY_CALLER());
    return status;
}

ASSAY_HOOK void* sbrk(intptr_t more) {
    if (!resolve() || real.sbrk == nullptr) return reinterpret_cast<void*>(-1);
    void* before = real.sbrk(more);
    if (before != reinterpret_cast<void*>(-1) && more != 0)
        note(Kind::brk, static_cast<char*>(before) + more,
             more > 0 ? static_cast<std::uint64_t>(more) : 0, ASSAY_CALLER());
    return before;
}

ASSAY_HOOK int dlclose(void* object) {
    if (!resolve()) return -1;
    before_unloading();
    const int status = real.dlclose(object);
    after_unloading();
    return status;
}

ASSAY_HOOK int pthread_getattr_np(pthread_t thread, pthread_attr_t* into) {
    if (!resolve() || real.pthread_getattr_np == nullptr) return ENOSYS;
    const bool before = asks_for_attributes;
    asks_for_attributes = true;
    const int status = real.pthread_getattr_np(thread, into);
    asks_for_attributes = before;
    return status;
}

// Ends that run no destructors: they are the program's own all the same.
ASSAY_HOOK [[noreturn]] void _exit(int status) {
    ends_by_itself();
    if (resolve() && real._exit != nullptr) real._exit(status);
    for (;;) syscall(SYS_exit_group, status);
}

ASSAY_HOOK [[noreturn]] void _Exit(int) __attribute__((alias("_exit")));
