// Allocators whose costs are planted, one library each (PLANTED chooses): the study has to find
// them exactly.
//
//   fault   every block is a mapping of its own, given back by free: one fault in malloc, for the
//           page before the block in which its size stands, and one for each page of the block at
//           first touch, in every cycle
//   leak    the same, but free does nothing: what was touched stays
//   slow    blocks are cut off a large piece and freed blocks are given again, and each malloc
//           takes 20 microseconds
//   half    no realloc
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define FAULT 1
#define LEAK 2
#define SLOW 3
#define HALF 4
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t page = 4096, line = 64;

void* mapped(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

#if PLANTED == SLOW

constexpr long slow_ns = 20'000;
constexpr size_t arena_bytes = size_t{1} << 30;
constexpr int classes = 64;

struct Free {
    Free* next;
};
char* arena = nullptr;
size_t arena_used = 0;
Free* freed[classes];
volatile int locked = 0;

void lock() {
    while (__sync_lock_test_and_set(&locked, 1)) {
    }
}
void unlock() { __sync_lock_release(&locked); }

// A power of two; the size stands in the line before the block.
int class_of(size_t size) {
    int k = 7;
    while ((size_t{1} << k) < size + line) ++k;
    return k;
}

void spend_time() {
    timespec begin, here;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &here);
    while ((here.tv_sec - begin.tv_sec) * 1'000'000'000 + here.tv_nsec - begin.tv_nsec < slow_ns);
}

void* allocate(size_t size) {
    spend_time();
    const int k = class_of(size);
    lock();
    if (arena == nullptr) arena = static_cast<char*>(mapped(arena_bytes));
    char* block = reinterpret_cast<char*>(freed[k]);
    if (block != nullptr) freed[k] = freed[k]->next;
    else if (arena_used + (size_t{1} << k) <= arena_bytes) {
        block = arena + arena_used + line;
        arena_used += size_t{1} << k;
    }
    unlock();
    if (block != nullptr) *reinterpret_cast<size_t*>(block - line) = size;
    return block;
}

void release(void* block) {
    const int k = class_of(*reinterpret_cast<size_t*>(static_cast<char*>(block) - line));
    lock();
    static_cast<Free*>(block)->next = freed[k];
    freed[k] = static_cast<Free*>(block);
    unlock();
}

size_t size_of(void* block) { return *reinterpret_cast<size_t*>(static_cast<char*>(block) - line); }

#else

void* allocate(size_t size) {
    auto* at = static_cast<char*>(mapped(page + (size + page - 1) / page * page));
    if (at == nullptr) return nullptr;
    *reinterpret_cast<size_t*>(at) = size;
    return at + page;
}
size_t size_of(void* block) { return *reinterpret_cast<size_t*>(static_cast<char*>(block) - page); }
void release(void* block) {
#if PLANTED == FAULT
    munmap(static_cast<char*>(block) - page, page + (size_of(block) + page - 1) / page * page);
#else
    (void)block;
#endif
}

#endif

}  // namespace

EXPORT void* malloc(size_t size) {
    void* block = allocate(size);
    if (block == nullptr) errno = ENOMEM;
    return block;
}

EXPORT void* calloc(size_t count, size_t size) {
    void* block = malloc(count * size);
    if (block != nullptr) memset(block, 0, count * size);
    return block;
}

EXPORT void free(void* block) {
    if (block != nullptr) release(block);
}

// Every block lies on a page or on a line: who asks for more gets nothing.
EXPORT void* aligned_alloc(size_t alignment, size_t size) {
    const uintptr_t block = reinterpret_cast<uintptr_t>(malloc(size));
    return block % alignment == 0 ? reinterpret_cast<void*>(block) : nullptr;
}

EXPORT int posix_memalign(void** into, size_t alignment, size_t size) {
    *into = aligned_alloc(alignment, size);
    return *into == nullptr ? ENOMEM : 0;
}

#if PLANTED != HALF
EXPORT void* realloc(void* block, size_t size) {
    void* other = malloc(size);
    if (block == nullptr || other == nullptr) return other;
    const size_t had = size_of(block);
    memcpy(other, block, had < size ? had : size);
    free(block);
    return other;
}
#endif
