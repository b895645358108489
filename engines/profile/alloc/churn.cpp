// Threads that allocate and free on their own, and threads that free what others have allocated.
#include <algorithm>

#include "profile/alloc/measured.hpp"

namespace assay::alloc {
namespace {

constexpr int rounds = 5;
constexpr std::size_t slots = 1024;        // live blocks of a thread
constexpr std::size_t sizes = 1 << 14;     // drawn beforehand
constexpr std::size_t between = 256;       // replacements between two looks at the clock
constexpr double least = 16, most = 1024;  // bytes

// Now and then in the timed part, which does not notice it: an allocator that gives nothing back is
// stopped in time.
class MemoryWatch {
public:
    void operator()(Nanoseconds here) {
        constexpr Nanoseconds between_looks = 50'000'000;
        if (here < next_) return;
        check_memory(0);
        next_ = here + between_looks;
    }

private:
    Nanoseconds next_ = 0;
};

// One thread's blocks: each in turn is freed and replaced by one of another size.
class Churner {
public:
    explicit Churner(unsigned thread) : sizes_(sizes), blocks_(slots) {
        Random random(thread + 1);
        for (std::uint16_t& size : sizes_)
            size = static_cast<std::uint16_t>(random.size(least, most));
        for (void*& block : blocks_) block = next();
    }
    ~Churner() {
        for (void* block : blocks_) std::free(block);
    }
    // Replacements a second until `until`.
    double run(Nanoseconds until) {
        std::uint64_t replaced = 0;
        const Nanoseconds begin = now();
        Nanoseconds end = begin;
        for (; end < until; end = now(), replaced += between) {
            watch_(end);
            for (std::size_t k = 0; k < between; ++k) {
                void*& block = blocks_[(slot_ += 97) % slots];  // an odd step visits all
                std::free(block);
                block = next();
            }
        }
        return static_cast<double>(replaced) / seconds(end - begin);
    }

private:
    void* next() {
        auto* block = static_cast<volatile char*>(given(sizes_[drawn_++ % sizes]));
        *block = 1;
        return const_cast<char*>(block);
    }
    Own<std::uint16_t> sizes_;
    Own<void*> blocks_;
    MemoryWatch watch_;
    std::size_t slot_ = 0, drawn_ = 0;
};

// A queue of one producer and one consumer, who look at each other's place only when their own view
// of it runs out.
struct alignas(64) Queue {
    static constexpr std::size_t room = 1024;
    void* blocks[room];
    alignas(64) std::atomic<std::uint64_t> put{0};
    alignas(64) std::atomic<std::uint64_t> taken{0};
};
constexpr std::size_t handed_over = 32;  // blocks at once
static_assert(Queue::room % handed_over == 0);

void produce(Queue& queue, std::size_t size, Nanoseconds until) {
    MemoryWatch watch;
    std::uint64_t put = queue.put.load();
    for (Nanoseconds here = now(); here < until; here = now()) {
        watch(here);
        while (put + handed_over > queue.taken.load(std::memory_order_acquire) + Queue::room) {
            if (now() >= until) return;
            std::this_thread::yield();
        }
        for (std::size_t k = 0; k < handed_over; ++k) {
            auto* block = static_cast<volatile char*>(given(size));
            *block = 1;
            queue.blocks[put++ % Queue::room] = const_cast<char*>(block);
        }
        queue.put.store(put, std::memory_order_release);
    }
}

// Blocks a second; ends when the producer has, and nothing is left.
double consume(Queue& queue, const std::atomic<bool>& produced) {
    const Nanoseconds begin = now();
    const std::uint64_t first = queue.taken.load();
    std::uint64_t taken = first;
    for (;;) {
        const bool last = produced.load(std::memory_order_acquire);
        const std::uint64_t put = queue.put.load(std::memory_order_acquire);
        for (; taken < put; ++taken) std::free(queue.blocks[taken % Queue::room]);
        if (queue.taken.exchange(taken, std::memory_order_release) == taken) {
            if (last) break;
            std::this_thread::yield();
        }
    }
    return static_cast<double>(taken - first) / seconds(now() - begin);
}

}  // namespace

void run_churn(const Task& task, Board& board) {
    Own<double> rates(task.threads);
    Nanoseconds until = 0;
    int round = 0;
    std::barrier start(static_cast<std::ptrdiff_t>(task.threads), [&]() noexcept {
        double sum = 0;
        for (const double rate : rates) sum += rate;
        if (round++ > 1) board.add(Series::rate, sum);  // the first warms up
        until = now() + static_cast<Nanoseconds>(task.seconds / (rounds + 1) * 1e9);
    });
    on_threads(task.threads, [&](unsigned thread) {
        Churner churner(thread);
        for (int k = 0; k <= rounds + 1; ++k) {
            start.arrive_and_wait();
            if (k <= rounds) rates[thread] = churner.run(until);
        }
    });
}

void run_handover(const Task& task, Board& board) {
    const unsigned pairs = std::max(1u, task.threads / 2);
    Own<Queue> queues(pairs);
    Own<double> rates(pairs);
    Own<std::atomic<bool>> produced(pairs);
    const std::uint64_t base = first_look().bytes;
    Nanoseconds until = 0;
    int round = 0;
    std::barrier start(static_cast<std::ptrdiff_t>(2 * pairs), [&]() noexcept {
        double sum = 0;
        for (double& rate : rates) sum += rate;
        if (round++ > 1) board.add(Series::rate, sum);
        for (auto& one : produced) one = false;
        until = now() + static_cast<Nanoseconds>(task.seconds / (rounds + 1) * 1e9);
    });
    on_threads(2 * pairs, [&](unsigned thread) {
        const unsigned pair = thread / 2;
        for (int k = 0; k <= rounds + 1; ++k) {
            start.arrive_and_wait();
            if (k > rounds) break;
            if (thread % 2 == 0) {
                produce(queues[pair], task.size, until);
                produced[pair].store(true, std::memory_order_release);
            } else {
                rates[pair] = consume(queues[pair], produced[pair]);
            }
        }
    });
    const std::uint64_t here = resident().bytes;
    board.add(Series::retained, here > base ? static_cast<double>(here - base) : 0.0);
}

}  // namespace assay::alloc
