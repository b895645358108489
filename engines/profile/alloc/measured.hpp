// The measured process: one task each, on the allocator that this process was started with.
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

#include "profile/alloc/board.hpp"
#include "profile/alloc/meter.hpp"

namespace assay::alloc {

// Maps the board, sees whose malloc is called, works the task; the exit status.
int serve_task();

void run_cycle(const Task&, Board&);
void run_touched(const Task&, Board&);
void run_retention(const Task&, Board&);
void run_churn(const Task&, Board&);
void run_handover(const Task&, Board&);
void run_mixed(const Task&, Board&);
void run_replay(const Task&, Board&);

// Ends the task: nothing can be said of this allocator, and why.
struct Refusal {
    char why[512];
};
[[noreturn]] __attribute__((format(printf, 1, 2))) void refuse(const char* format, ...);

// The compiler must take it that the block is used.
inline void keep(void* p) { asm volatile("" : : "r"(p) : "memory"); }

// Memory of the study's own, in place before anything is measured and no concern of the
// allocator's.
template <class T>
class Own {
public:
    explicit Own(std::size_t count) : count_(count) {
        void* at =
            mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) refuse("no memory for the study's own %zu bytes", bytes());
        data_ = static_cast<T*>(at);
        std::memset(at, 0, bytes());
    }
    ~Own() { munmap(data_, bytes()); }
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
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

// One store a page, as the application's first access does it.
inline void touch(void* block, std::size_t size, std::size_t page) {
    auto* at = static_cast<volatile char*>(block);
    for (std::size_t k = 0; k < size; k += page) at[k] = 1;
}

inline void* given(std::size_t size) {
    void* block = std::malloc(size);
    if (__builtin_expect(block == nullptr, 0)) refuse("malloc(%zu) gives nothing", size);
    return block;
}

// How many blocks are asked for between two looks at the clock: enough for it not to count, few
// enough to stay in the caches.
inline std::size_t batch_of(std::size_t size) {
    constexpr std::size_t most = 1024, together = 4 << 20;
    return size >= together ? 1 : size * most <= together ? most : together / size;
}

// Refuses when `bytes` more would not fit: an allocator that gives nothing back must not take the
// machine down.
void check_memory(std::size_t bytes);

// What is resident before the allocator is asked for anything, when all that looking takes is in
// place.
Resident first_look();

// One thread is the process itself, as in a program without threads; several are threads of their
// own.
template <class Work>
void on_threads(unsigned count, Work work) {
    if (count == 1) {
        work(0u);
        return;
    }
    std::vector<std::thread> threads;
    for (unsigned k = 0; k < count; ++k) threads.emplace_back(work, k);
    for (std::thread& one : threads) one.join();
}

// Marsaglia's xorshift64*: as fast as anything, and the same everywhere.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
    std::uint64_t operator()() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1D;
    }
    double share() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
    // As likely in each power of two.
    std::size_t size(double least, double most);

private:
    std::uint64_t state_;
};

}  // namespace assay::alloc
