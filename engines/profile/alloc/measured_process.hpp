// The measured process. It runs one task, with the allocator that was preloaded at its start.
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

// Maps the shared results, determines the library whose malloc is called, and runs the task.
// Returns the exit status of the process.
int serve_task();

void run_cycle(const Task&, SharedResults&);
void run_first_batch(const Task&, SharedResults&);
void run_retention(const Task&, SharedResults&);
void run_churn(const Task&, SharedResults&);
void run_handover(const Task&, SharedResults&);
void run_mixed(const Task&, SharedResults&);
void run_replay(const Task&, SharedResults&);

// Ends the process. The task is waived (not measured) with this reason.
[[noreturn]] __attribute__((format(printf, 1, 2))) void waive(const char* format, ...);

// Prevents the compiler from removing the allocation of the block.
inline void do_not_optimize(void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Memory of the benchmark itself. It is mapped and made resident before the measurement, and does
// not come from the allocator under test.
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

// Stores one byte per page, like a program's first access to the block.
inline void touch(void* block, std::size_t size, std::size_t page) {
    auto* bytes = static_cast<volatile char*>(block);
    for (std::size_t k = 0; k < size; k += page) bytes[k] = 1;
}

// Calls malloc(). Waives the task if it fails.
inline void* must_malloc(std::size_t size) {
    void* block = std::malloc(size);
    if (__builtin_expect(block == nullptr, 0)) waive("malloc(%zu) returned no memory", size);
    return block;
}

// The number of blocks between two readings of the clock: enough to make its cost negligible, and
// few enough to fit into the caches.
inline std::size_t batch_size(std::size_t size) {
    constexpr std::size_t max_blocks = 1024, max_bytes = 4 << 20;
    return size >= max_bytes ? 1 : size * max_blocks <= max_bytes ? max_blocks : max_bytes / size;
}

// Waives the task if `bytes` more would not fit into memory, so that an allocator that never
// returns memory does not exhaust the machine.
void check_memory(std::size_t bytes);

// The resident memory before the first allocation of the task, including the memory that the
// reading itself needs.
ResidentMemory resident_at_start();

// Runs work(0) ... work(count - 1) in threads. A single one runs in the main thread, as in a
// program without threads.
template <class Work>
void run_in_threads(unsigned count, Work work) {
    if (count == 1) {
        work(0u);
        return;
    }
    std::vector<std::thread> threads;
    threads.reserve(count);
    for (unsigned k = 0; k < count; ++k) threads.emplace_back(work, k);
    for (std::thread& thread : threads) thread.join();
}

// The random generator xorshift64* (Marsaglia, Vigna): fast and reproducible on every machine.
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
