// The measured process: it runs one task, on the allocator that it was started with.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "profile/alloc/meter.hpp"
#include "profile/alloc/shared_results.hpp"

namespace assay::alloc {

// Maps the shared results, finds out whose malloc is called, runs the task. Returns the process's
// exit status.
int serve_task();

void run_cycle(const Task&, SharedResults&);
void run_first_batch(const Task&, SharedResults&);
void run_retention(const Task&, SharedResults&);
void run_churn(const Task&, SharedResults&);
void run_handover(const Task&, SharedResults&);
void run_mixed(const Task&, SharedResults&);
void run_replay(const Task&, SharedResults&);

// Ends the process; the task is waived, with this reason.
[[noreturn]] __attribute__((format(printf, 1, 2))) void waive(const char* format, ...);

// Keeps the compiler from removing the block's allocation.
inline void keep(void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Memory of the study itself: mapped and touched before anything is measured, and not from the
// allocator.
template <class T>
class MappedArray {
public:
    explicit MappedArray(std::size_t count) : count_(count) {
        void* memory =
            mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) waive("no memory for the study's own %zu bytes", bytes());
        data_ = static_cast<T*>(memory);
        std::memset(memory, 0, bytes());
    }
    ~MappedArray() { munmap(data_, bytes()); }
    MappedArray(const MappedArray&) = delete;
    MappedArray& operator=(const MappedArray&) = delete;
    T& operator[](std::size_t k) { return data_[k]; }
    T* begin() { return data_; }
    T* end() { return data_ + count_; }
    std::size_t size() const { return count_; }

private:
    std::size_t bytes() const { return (count_ * sizeof(T) + 4095) & ~std::size_t{4095}; }
    std::size_t count_;
    T* data_;
};

inline std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// One store a page: a program's first access to the block.
inline void touch(void* block, std::size_t size, std::size_t page) {
    auto* bytes = static_cast<volatile char*>(block);
    for (std::size_t k = 0; k < size; k += page) bytes[k] = 1;
}

// malloc() that waives the task when it fails.
inline void* must_malloc(std::size_t size) {
    void* block = std::malloc(size);
    if (__builtin_expect(block == nullptr, 0)) waive("malloc(%zu) returned no memory", size);
    return block;
}

// Blocks between two readings of the clock: enough to make its cost negligible, few enough to fit
// into the caches.
inline std::size_t batch_size(std::size_t size) {
    constexpr std::size_t max_blocks = 1024, max_bytes = 4 << 20;
    return size >= max_bytes ? 1 : size * max_blocks <= max_bytes ? max_blocks : max_bytes / size;
}

// Waives the task when `bytes` more would not fit into memory: an allocator that never returns
// memory must not bring the machine down.
void check_memory(std::size_t bytes);

// Resident memory before the first allocation of the task. What reading it needs is mapped then.
ResidentMemory resident_at_start();

// Runs work(0) ... work(count - 1). A single one runs in the main thread, as in a program without
// threads.
template <class Work>
void on_threads(unsigned count, Work work) {
    if (count == 1) {
        work(0u);
        return;
    }
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (unsigned k = 0; k < count; ++k) threads.emplace_back(work, k);
    for (std::thread& thread : threads) thread.join();
}

// Marsaglia's xorshift64*: fast, and the same on every machine.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
    std::uint64_t operator()() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1D;
    }
    double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }  // in [0, 1)
    // Log-uniform: each power of two is equally likely.
    std::size_t log_uniform(double min, double max);

private:
    std::uint64_t state_;
};

}  // namespace assay::alloc
