// The measurements `threads` (threads that replace their own blocks) and `handover` (threads that
// free other threads' blocks).
#include <algorithm>

#include "profile/alloc/measured_process.hpp"

namespace assay::alloc {
namespace {

constexpr int rounds = 5;
constexpr std::size_t blocks_per_thread = 1024;     // live at once
constexpr std::size_t random_size_count = 1 << 14;  // drawn before the measurement
constexpr std::size_t replacements_per_clock_reading = 256;
constexpr double min_size = 16, max_size = 1024;  // bytes

// Calls check_memory() every 50 ms in the timed part, which takes a negligible time, so that an
// allocator that never returns memory is stopped before memory runs out.
class MemoryCheck {
public:
    void operator()(Nanoseconds time) {
        constexpr Nanoseconds interval = 50'000'000;
        if (time < next_) return;
        check_memory(/*bytes=*/0);
        next_ = time + interval;
    }

private:
    Nanoseconds next_ = 0;
};

// The blocks of one thread. Each in turn is freed and replaced by a block of another size.
class Churner {
public:
    explicit Churner(unsigned thread) : sizes_(random_size_count), blocks_(blocks_per_thread) {
        Random random(thread + 1);
        for (std::uint16_t& size : sizes_)
            size = static_cast<std::uint16_t>(random.log_uniform(min_size, max_size));
        for (void*& block : blocks_) block = allocate_next();
    }
    ~Churner() {
        for (void* block : blocks_) std::free(block);
    }
    // Replaces blocks until `deadline`. Returns the replacements per second.
    double run(Nanoseconds deadline) {
        std::uint64_t replaced = 0;
        const Nanoseconds begin = now();
        Nanoseconds end = begin;
        for (; end < deadline; end = now(), replaced += replacements_per_clock_reading) {
            memory_check_(end);
            for (std::size_t k = 0; k < replacements_per_clock_reading; ++k) {
                // An odd step visits all blocks.
                void*& block = blocks_[(index_ += 97) % blocks_per_thread];
                std::free(block);
                block = allocate_next();
            }
        }
        return static_cast<double>(replaced) / seconds(end - begin);
    }

private:
    void* allocate_next() {
        auto* block =
            static_cast<volatile char*>(must_malloc(sizes_[next_size_++ % random_size_count]));
        *block = 1;
        return const_cast<char*>(block);
    }
    MappedArray<std::uint16_t> sizes_;
    MappedArray<void*> blocks_;
    MemoryCheck memory_check_;
    std::size_t index_ = 0, next_size_ = 0;
};

// A queue with one producer and one consumer.
struct alignas(64) Queue {
    static constexpr std::size_t capacity = 1024;
    void* blocks[capacity];
    alignas(64) std::atomic<std::uint64_t> produced{0};
    alignas(64) std::atomic<std::uint64_t> consumed{0};
};
constexpr std::size_t blocks_per_handover = 32;  // number of blocks published at once
static_assert(Queue::capacity % blocks_per_handover == 0);

void produce(Queue& queue, std::size_t size, Nanoseconds deadline) {
    MemoryCheck memory_check;
    std::uint64_t produced = queue.produced.load();
    for (Nanoseconds time = now(); time < deadline; time = now()) {
        memory_check(time);
        while (produced + blocks_per_handover >
               queue.consumed.load(std::memory_order_acquire) + Queue::capacity) {
            if (now() >= deadline) return;
            std::this_thread::yield();
        }
        for (std::size_t k = 0; k < blocks_per_handover; ++k) {
            auto* block = static_cast<volatile char*>(must_malloc(size));
            *block = 1;
            queue.blocks[produced++ % Queue::capacity] = const_cast<char*>(block);
        }
        queue.produced.store(produced, std::memory_order_release);
    }
}

// Frees the blocks of the queue until the producer has ended and the queue is empty. Returns the
// blocks per second.
double consume(Queue& queue, const std::atomic<bool>& is_producer_done) {
    const Nanoseconds begin = now();
    const std::uint64_t consumed_before = queue.consumed.load();
    std::uint64_t consumed = consumed_before;
    for (;;) {
        const bool is_last = is_producer_done.load(std::memory_order_acquire);
        const std::uint64_t produced = queue.produced.load(std::memory_order_acquire);
        for (; consumed < produced; ++consumed) std::free(queue.blocks[consumed % Queue::capacity]);
        if (queue.consumed.exchange(consumed, std::memory_order_release) == consumed) {
            if (is_last) break;
            std::this_thread::yield();
        }
    }
    return static_cast<double>(consumed - consumed_before) / seconds(now() - begin);
}

}  // namespace

void run_churn(const Task& task, SharedResults& results) {
    MappedArray<double> rates(task.threads);
    Nanoseconds deadline = 0;
    int round = 0;
    std::barrier start(static_cast<std::ptrdiff_t>(task.threads), [&]() noexcept {
        double sum = 0;
        for (const double rate : rates) sum += rate;
        if (round++ > 1) results.add(Series::rate, sum);  // the first round is a warm-up
        deadline = now() + static_cast<Nanoseconds>(task.seconds / (rounds + 1) * 1e9);
    });
    run_in_threads(task.threads, [&](unsigned thread) {
        Churner churner(thread);
        for (int k = 0; k <= rounds + 1; ++k) {
            start.arrive_and_wait();
            if (k <= rounds) rates[thread] = churner.run(deadline);
        }
    });
}

void run_handover(const Task& task, SharedResults& results) {
    const unsigned pairs = std::max(1u, task.threads / 2);
    MappedArray<Queue> queues(pairs);
    MappedArray<double> rates(pairs);
    MappedArray<std::atomic<bool>> is_producer_done(pairs);
    const std::uint64_t bytes_at_start = resident_at_start().bytes;
    Nanoseconds deadline = 0;
    int round = 0;
    std::barrier start(static_cast<std::ptrdiff_t>(2 * pairs), [&]() noexcept {
        double sum = 0;
        for (double& rate : rates) sum += rate;
        if (round++ > 1) results.add(Series::rate, sum);
        for (auto& flag : is_producer_done) flag = false;
        deadline = now() + static_cast<Nanoseconds>(task.seconds / (rounds + 1) * 1e9);
    });
    run_in_threads(2 * pairs, [&](unsigned thread) {
        const unsigned pair = thread / 2;
        for (int k = 0; k <= rounds + 1; ++k) {
            start.arrive_and_wait();
            if (k > rounds) break;
            if (thread % 2 == 0) {
                produce(queues[pair], task.size, deadline);
                is_producer_done[pair].store(true, std::memory_order_release);
            } else {
                rates[pair] = consume(queues[pair], is_producer_done[pair]);
            }
        }
    });
    const std::uint64_t bytes = resident_memory().bytes;
    results.add(Series::retained,
                bytes > bytes_at_start ? static_cast<double>(bytes - bytes_at_start) : 0.0);
}

}  // namespace assay::alloc
