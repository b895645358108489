// The hooks: functions that interpose those of the allocator, call the real function and record its
// result.
//
// The real functions are the next in the symbol search order (dlsym RTLD_NEXT): glibc's, or those
// of an allocator that the program is linked with or preloads. In an attached process they are the
// functions that it called before. Until they are known, requests are served from a small bootstrap
// buffer, whose blocks are never freed. No hook changes an argument, a result or errno.
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
#include "profile/heap/recording.hpp"
#include "profile/stack/region.hpp"

namespace assay::heap {
namespace {

struct RealFunctions {
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
RealFunctions real;

enum class ResolveState : int { pending, running, done };
std::atomic<ResolveState> resolve_state{ResolveState::pending};

// Memory for allocations of dlsym itself. The size is stored 16 bytes before a block.
alignas(16) char bootstrap[64 << 10];
std::atomic<std::size_t> bootstrap_used{0};

void* allocate_bootstrap(size_t bytes) {
    const std::size_t rounded = (bytes + 31) & ~std::size_t{15};
    const std::size_t offset = bootstrap_used.fetch_add(rounded);
    if (offset + rounded > sizeof bootstrap) return nullptr;
    memcpy(bootstrap + offset, &bytes, sizeof bytes);
    return bootstrap + offset + 16;
}
bool is_bootstrap(const void* p) { return p >= bootstrap && p < bootstrap + sizeof bootstrap; }

// Calls visit(pointer, name) for each function.
template <class Visit>
void for_each_function(Visit visit) {
    visit(real.malloc, "malloc");
    visit(real.calloc, "calloc");
    visit(real.realloc, "realloc");
    visit(real.free, "free");
    visit(real.memalign, "memalign");
    visit(real.aligned_alloc, "aligned_alloc");
    visit(real.posix_memalign, "posix_memalign");
    visit(real.valloc, "valloc");
    visit(real.pvalloc, "pvalloc");
    visit(real.malloc_usable_size, "malloc_usable_size");
    visit(real.mmap, "mmap");
    visit(real.munmap, "munmap");
    visit(real.mremap, "mremap");
    visit(real.brk, "brk");
    visit(real.sbrk, "sbrk");
    visit(real.dlclose, "dlclose");
    visit(real.pthread_getattr_np, "pthread_getattr_np");
    visit(real._exit, "_exit");
}

// Resolves the real functions. Returns false while this or another thread is resolving them.
__attribute__((noinline)) bool resolve_functions() {
    auto expected = ResolveState::pending;
    if (!resolve_state.compare_exchange_strong(expected, ResolveState::running))
        return expected == ResolveState::done;
    for_each_function([]<class F>(F*& function, const char* name) {
        function = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
    });
    resolve_state.store(ResolveState::done, std::memory_order_release);
    return true;
}

// Returns false if the real functions are not known yet; the bootstrap buffer then serves the
// request.
inline bool resolve() {
    return __builtin_expect(resolve_state.load(std::memory_order_acquire) == ResolveState::done,
                            1) ||
           resolve_functions();
}

// Counts the release of a large block as an munmap: the allocator's own calls pass no hook. Such a
// block begins a page, or follows glibc's header of 16 bytes. Only readers of Python's memory ask.
class LargeRelease {
public:
    explicit LargeRelease(void* block)
        : is_large_(python_ready.load(std::memory_order_relaxed) &&
                    (reinterpret_cast<std::uint64_t>(block) & 0xfef) == 0 &&
                    real.malloc_usable_size != nullptr &&
                    real.malloc_usable_size(block) >= least_bytes) {}
    ~LargeRelease() {
        if (__builtin_expect(is_large_, 0))
            assay::stack::unmap_count.fetch_add(1, std::memory_order_release);
    }
    LargeRelease(const LargeRelease&) = delete;
    LargeRelease& operator=(const LargeRelease&) = delete;

private:
    static constexpr size_t least_bytes = 64 << 10;

    bool is_large_;
};

void release(void* block) {
    const LargeRelease noted(block);
    real.free(block);
}

void* reallocate(void* block, size_t size) {
    const LargeRelease noted(block);
    return real.realloc(block, size);
}

// Makes a call that returns a block and records it. Some calls are timed.
template <class Call>
__attribute__((always_inline)) inline void* record_allocation(Kind kind, std::uint64_t size,
                                                              const assay::stack::Frame& caller,
                                                              Call call) {
    Thread* thread = recording_thread();
    if (thread == nullptr) return call();
    if (!is_selected(*thread, size)) {
        void* block = call();
        thread->allocated = block;
        return block;
    }
    const std::uint64_t start = should_time_call(*thread) ? assay::stack::ticks() : 0;
    void* block = call();
    const std::uint64_t time = assay::stack::ticks();
    record_block(*thread, start, time, kind, block, size, caller);
    return block;
}

// Records mmap, munmap, mremap and brk, which are rare. An allocator that is part of the executable
// calls these hooks while it holds its locks.
void record_mapping(Kind kind, const void* address, std::uint64_t bytes,
                    const assay::stack::Frame& caller) {
    if (Thread* thread = recording_thread(Caller::allocator))
        record(*thread, assay::stack::ticks(), kind, address, bytes, caller);
}

}  // namespace

bool was_recorded(void* block) {
    if (__builtin_expect(!filter.is_active, 1)) return true;
    if (filter.sample_bytes != 0) return sampled_blocks.erase(block);
    return real.malloc_usable_size == nullptr ||
           real.malloc_usable_size(block) >= filter.min_block_bytes;
}

std::uint64_t program_break() {
    return real.sbrk != nullptr ? reinterpret_cast<std::uint64_t>(real.sbrk(0)) : 0;
}

void set_real_functions(std::uint64_t (*address_of)(const char* name)) {
    for_each_function([=]<class F>(F*& function, const char* name) {
        function = reinterpret_cast<F*>(address_of(name));
    });
    resolve_state.store(ResolveState::done, std::memory_order_release);
}

}  // namespace assay::heap

using namespace assay::heap;
using assay::stack::Frame;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK void* malloc(size_t size) {
    if (!resolve()) return allocate_bootstrap(size);
    return record_allocation(Kind::malloc, size, ASSAY_CALLER(), [=] { return real.malloc(size); });
}

ASSAY_HOOK void* calloc(size_t count, size_t size) {
    size_t bytes = 0;
    if (!resolve())
        return __builtin_mul_overflow(count, size, &bytes) ? nullptr : allocate_bootstrap(bytes);
    const std::uint64_t requested_bytes = static_cast<std::uint64_t>(count) * size;
    return record_allocation(Kind::calloc, requested_bytes, ASSAY_CALLER(),
                             [=] { return real.calloc(count, size); });
}

ASSAY_HOOK void free(void* block) {
    if (block == nullptr || is_bootstrap(block) || !resolve()) return;
    Thread* thread = recording_thread();
    if (thread == nullptr || block == thread->deleted || !was_recorded(block))
        return release(block);
    record_release(*thread, block, ASSAY_CALLER(), [=] { release(block); });
}

namespace {

void* record_reallocation(void* block, size_t size, const Frame& caller) {
    Thread* thread = recording_thread();
    if (thread == nullptr) return reallocate(block, size);
    if (!was_recorded(block))
        return record_allocation(Kind::malloc, size, caller,
                                 [=] { return reallocate(block, size); });
    // A reallocation is two events, since another thread may get the old block before realloc
    // returns.
    const std::uint64_t start = assay::stack::ticks();
    assay::stack::StackId stack = assay::stack::no_stack;  // stack of both events
    record(*thread, start, Kind::realloc_from, block, 0, caller,
           [&] { return stack = capture_stack(*thread, caller); });
    const std::uint64_t call_start = should_time_call(*thread) ? assay::stack::ticks() : 0;
    void* result = reallocate(block, size);
    const std::uint64_t time = assay::stack::ticks();
    const bool failed = result == nullptr && size != 0;
    // A sampled block stays sampled until it is freed, whatever its new size.
    if (filter.sample_bytes != 0 && (failed || result != nullptr) &&
        !sampled_blocks.insert(failed ? block : result))
        count_unsampled();
    if (record(*thread, time, Kind::realloc, failed ? block : result,
               failed ? not_reallocated : size, caller, [=] { return stack; }) &&
        call_start != 0)
        record_call_ticks(*thread, ticks_between(call_start, time));
    return result;
}

// Moves a block of the bootstrap buffer to the real allocator, for realloc.
void* migrate_bootstrap_block(void* block, size_t size, const Frame& caller) {
    size_t old_size = 0;
    memcpy(&old_size, static_cast<char*>(block) - 16, sizeof old_size);
    void* result = record_allocation(Kind::malloc, size, caller, [=] { return real.malloc(size); });
    if (result != nullptr) memcpy(result, block, old_size < size ? old_size : size);
    return result;
}

}  // namespace

ASSAY_HOOK void* realloc(void* block, size_t size) {
    if (!resolve()) return block == nullptr ? allocate_bootstrap(size) : nullptr;
    const Frame caller = ASSAY_CALLER();
    if (block == nullptr)
        return record_allocation(Kind::malloc, size, caller,
                                 [=] { return real.realloc(nullptr, size); });
    return is_bootstrap(block) ? migrate_bootstrap_block(block, size, caller)
                               : record_reallocation(block, size, caller);
}

ASSAY_HOOK void* reallocarray(void* block, size_t count, size_t size) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return nullptr;
    }
    if (!resolve()) return block == nullptr ? allocate_bootstrap(bytes) : nullptr;
    const Frame caller = ASSAY_CALLER();
    if (block == nullptr)
        return record_allocation(Kind::malloc, bytes, caller,
                                 [=] { return real.realloc(nullptr, bytes); });
    return is_bootstrap(block) ? migrate_bootstrap_block(block, bytes, caller)
                               : record_reallocation(block, bytes, caller);
}

ASSAY_HOOK void* memalign(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return record_allocation(Kind::memalign, size, ASSAY_CALLER(),
                             [=] { return real.memalign(alignment, size); });
}

ASSAY_HOOK void* aligned_alloc(size_t alignment, size_t size) {
    if (!resolve()) return nullptr;
    return record_allocation(Kind::memalign, size, ASSAY_CALLER(),
                             [=] { return real.aligned_alloc(alignment, size); });
}

ASSAY_HOOK int posix_memalign(void** block, size_t alignment, size_t size) {
    if (!resolve()) return ENOMEM;
    int status = 0;
    record_allocation(Kind::memalign, size, ASSAY_CALLER(), [&]() -> void* {
        status = real.posix_memalign(block, alignment, size);
        return status == 0 ? *block : nullptr;
    });
    return status;
}

ASSAY_HOOK void* valloc(size_t size) {
    if (!resolve()) return nullptr;
    return record_allocation(Kind::memalign, size, ASSAY_CALLER(),
                             [=] { return real.valloc(size); });
}

ASSAY_HOOK void* pvalloc(size_t size) {
    if (!resolve()) return nullptr;
    return record_allocation(Kind::memalign, size, ASSAY_CALLER(),
                             [=] { return real.pvalloc(size); });
}

ASSAY_HOOK size_t malloc_usable_size(void* block) {
    if (block == nullptr || !resolve()) return 0;
    if (!is_bootstrap(block)) return real.malloc_usable_size(block);
    size_t old_size = 0;
    memcpy(&old_size, static_cast<char*>(block) - 16, sizeof old_size);
    return old_size;
}

ASSAY_HOOK void* mmap(void* address, size_t bytes, int protection, int flags, int fd,
                      off_t offset) {
    if (!resolve() || real.mmap == nullptr) return MAP_FAILED;
    void* mapped = real.mmap(address, bytes, protection, flags, fd, offset);
    if (mapped != MAP_FAILED) record_mapping(Kind::map, mapped, bytes, ASSAY_CALLER());
    return mapped;
}

ASSAY_HOOK void* mmap64(void*, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

ASSAY_HOOK int munmap(void* address, size_t bytes) {
    if (!resolve()) return -1;
    record_mapping(Kind::unmap, address, bytes, ASSAY_CALLER());
    const int status = real.munmap(address, bytes);
    assay::stack::unmap_count.fetch_add(1, std::memory_order_release);
    return status;
}

ASSAY_HOOK void* mremap(void* address, size_t old_bytes, size_t bytes, int flags, ...) {
    if (!resolve()) return MAP_FAILED;
    va_list rest;
    va_start(rest, flags);
    void* new_address = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : nullptr;
    va_end(rest);
    record_mapping(Kind::unmap, address, old_bytes, ASSAY_CALLER());
    void* mapped = real.mremap(address, old_bytes, bytes, flags, new_address);
    assay::stack::unmap_count.fetch_add(1, std::memory_order_release);
    const bool failed = mapped == MAP_FAILED;
    record_mapping(Kind::map, failed ? address : mapped, failed ? old_bytes : bytes,
                   ASSAY_CALLER());
    return mapped;
}

ASSAY_HOOK int brk(void* end) {
    if (!resolve() || real.brk == nullptr) return -1;
    const int status = real.brk(end);
    if (status == 0) record_mapping(Kind::brk, end, 0, ASSAY_CALLER());
    return status;
}

ASSAY_HOOK void* sbrk(intptr_t increment) {
    if (!resolve() || real.sbrk == nullptr) return reinterpret_cast<void*>(-1);
    void* old_break = real.sbrk(increment);
    if (old_break != reinterpret_cast<void*>(-1) && increment != 0)
        record_mapping(Kind::brk, static_cast<char*>(old_break) + increment,
                       increment > 0 ? static_cast<std::uint64_t>(increment) : 0, ASSAY_CALLER());
    return old_break;
}

ASSAY_HOOK int dlclose(void* object) {
    if (!resolve()) return -1;
    before_unloading();
    const int status = real.dlclose(object);
    after_unloading();
    return status;
}

ASSAY_HOOK int pthread_getattr_np(pthread_t thread, pthread_attr_t* attributes) {
    if (!resolve() || real.pthread_getattr_np == nullptr) return ENOSYS;
    const bool was_in_getattr_np = in_getattr_np;
    in_getattr_np = true;
    const int status = real.pthread_getattr_np(thread, attributes);
    in_getattr_np = was_in_getattr_np;
    return status;
}

// _exit runs no destructors, so the exit is noted here.
ASSAY_HOOK void _exit(int status) {
    note_exit();
    if (resolve() && real._exit != nullptr) real._exit(status);
    for (;;) syscall(SYS_exit_group, status);
}

ASSAY_HOOK void _Exit(int) __attribute__((alias("_exit")));
