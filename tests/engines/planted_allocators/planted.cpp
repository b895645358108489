// Allocators with known costs, which the allocator study must measure exactly. The macro PLANTED
// selects the allocator of a library:
//
//   fault   every block is a mapping, which free unmaps. In every cycle malloc takes one page fault
//           (for the page before the block, which holds its size), and the first touch takes one
//           for each page of the block.
//   leak    like fault, but free does nothing: touched pages stay resident.
//   slow    blocks come from one large mapping and are reused; each malloc takes 20 microseconds.
//   half    like leak, but without realloc, so the library is not a complete allocator.
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

constexpr size_t page = 4096, header_bytes = 64;

void* map_memory(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    return memory;
}

#if PLANTED == SLOW

constexpr long slow_ns = 20'000;
constexpr size_t arena_bytes = size_t{1} << 30;
constexpr int size_classes = 64;

struct FreeBlock {
    FreeBlock* next;
};
char* arena = nullptr;
size_t arena_used = 0;
FreeBlock* free_lists[size_classes];
volatile int lock_word = 0;

void lock() {
    while (__sync_lock_test_and_set(&lock_word, 1)) {
    }
}
void unlock() { __sync_lock_release(&lock_word); }

// The size class of a block: log2 of its bytes with the header, rounded up. The header has the
// size.
int size_class_of(size_t size) {
    int size_class = 7;
    while ((size_t{1} << size_class) < size + header_bytes) ++size_class;
    return size_class;
}

void spend_time() {
    timespec begin, time;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &time);
    while ((time.tv_sec - begin.tv_sec) * 1'000'000'000 + time.tv_nsec - begin.tv_nsec < slow_ns);
}

void* allocate(size_t size) {
    spend_time();
    const int size_class = size_class_of(size);
    lock();
    if (arena == nullptr) arena = static_cast<char*>(map_memory(arena_bytes));
    char* block = reinterpret_cast<char*>(free_lists[size_class]);
    if (block != nullptr) free_lists[size_class] = free_lists[size_class]->next;
    else if (arena_used + (size_t{1} << size_class) <= arena_bytes) {
        block = arena + arena_used + header_bytes;
        arena_used += size_t{1} << size_class;
    }
    unlock();
    if (block != nullptr) *reinterpret_cast<size_t*>(block - header_bytes) = size;
    return block;
}

void release(void* block) {
    const int size_class =
        size_class_of(*reinterpret_cast<size_t*>(static_cast<char*>(block) - header_bytes));
    lock();
    static_cast<FreeBlock*>(block)->next = free_lists[size_class];
    free_lists[size_class] = static_cast<FreeBlock*>(block);
    unlock();
}

size_t size_of(void* block) {
    return *reinterpret_cast<size_t*>(static_cast<char*>(block) - header_bytes);
}

#else

void* allocate(size_t size) {
    auto* memory = static_cast<char*>(map_memory(page + (size + page - 1) / page * page));
    if (memory == nullptr) return nullptr;
    *reinterpret_cast<size_t*>(memory) = size;
    return memory + page;
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

// Blocks are aligned to a page or to 64 bytes; a larger alignment fails.
EXPORT void* aligned_alloc(size_t alignment, size_t size) {
    const uintptr_t block = reinterpret_cast<uintptr_t>(malloc(size));
    return block % alignment == 0 ? reinterpret_cast<void*>(block) : nullptr;
}

EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
    *result = aligned_alloc(alignment, size);
    return *result == nullptr ? ENOMEM : 0;
}

#if PLANTED != HALF
EXPORT void* realloc(void* block, size_t size) {
    void* new_block = malloc(size);
    if (block == nullptr || new_block == nullptr) return new_block;
    const size_t old_size = size_of(block);
    memcpy(new_block, block, old_size < size ? old_size : size);
    free(block);
    return new_block;
}
#endif
