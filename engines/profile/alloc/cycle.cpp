// The measurement `cycle`: malloc, first touch, second touch and free of blocks of one size, each
// timed separately, with the page faults of each.
//
// All blocks of a batch go through each phase together, so that the clock's cost is negligible even
// for 16-byte blocks. The first batch of a process shows the cost of fresh memory; later ones,
// after a warm-up, show the reuse of freed memory. In between, malloc and the
// stores are timed together, which shows the whole cost of a large block, and so are pairs of
// malloc and free, the fastest pattern.
#include "profile/alloc/measured_process.hpp"

namespace assay::alloc {
namespace {

constexpr int warmup_cycles = 3;             // glibc adapts its mmap threshold within two cycles
constexpr std::size_t large_size = 1 << 30;  // bytes; cycles of larger blocks take long
constexpr std::size_t max_pairs = 1000;
// Bytes allocated between two checks of the available memory.
constexpr std::size_t bytes_per_check = 64 << 20;

struct PhaseSeries {
    Series malloc, touch, retouch, free;
    Series malloc_faults, touch_faults, retouch_faults, free_faults;
};
constexpr PhaseSeries first_batch_series{Series::malloc_first,         Series::touch_first,
                                         Series::retouch_first,        Series::free_first,
                                         Series::malloc_faults_first,  Series::touch_faults_first,
                                         Series::retouch_faults_first, Series::free_faults_first};
constexpr PhaseSeries repeated_series{
    Series::malloc,        Series::touch,        Series::retouch,        Series::free,
    Series::malloc_faults, Series::touch_faults, Series::retouch_faults, Series::free_faults};

// The blocks of one thread.
class Batch {
public:
    Batch(const Task& task, SharedResults& results)
        : size_(task.size),
          page_bytes_(page_bytes()),
          tick_s_(task.tick_s),
          results_(results),
          blocks_(batch_size(task.size)) {}

    void cycle(const PhaseSeries* series) {
        check_memory_at_intervals();
        const Cost malloc_cost = measure_cost([&] { allocate(); });
        const Cost touch_cost = measure_cost([&] { touch_all(); });
        const Cost retouch_cost = measure_cost([&] { touch_all(); });
        const Cost free_cost = measure_cost([&] { free_all(); });
        if (series == nullptr) return;
        add(series->malloc, series->malloc_faults, malloc_cost);
        add(series->touch, series->touch_faults, touch_cost);
        add(series->retouch, series->retouch_faults, retouch_cost);
        add(series->free, series->free_faults, free_cost);
    }

    void malloc_and_touch(Series series) {
        check_memory_at_intervals();
        const Cost cost = measure_cost([&] {
            for (void*& block : blocks_) touch(block = must_malloc(size_), size_, page_bytes_);
        });
        free_all();
        results_.add(series, cost.time * per_block());
    }

    void measure_pairs() {
        const std::size_t count = size_ <= (32 << 10) ? max_pairs : 16;
        check_memory_at_intervals();
        const Cost pair_cost = measure_cost([&] {
            for (std::size_t k = 0; k < count; ++k) {
                void* block = must_malloc(size_);
                do_not_optimize(block);
                std::free(block);
            }
        });
        const Cost loop_cost = measure_cost([&] {
            for (std::size_t k = 0; k < count; ++k) do_not_optimize(&results_);
        });
        results_.add(Series::pair, pair_cost.time * tick_s_ / static_cast<double>(count));
        results_.add(Series::overhead, loop_cost.time * tick_s_ / static_cast<double>(count));
    }

private:
    struct Cost {
        double time;  // ticks
        double faults;
    };

    template <class Work>
    static Cost measure_cost(Work work) {
        const std::uint64_t faults = page_faults(), begin = ticks();
        work();
        const std::uint64_t end = ticks();
        return {static_cast<double>(end - begin), static_cast<double>(page_faults() - faults)};
    }

    void allocate() {
        for (void*& block : blocks_) do_not_optimize(block = must_malloc(size_));
    }
    void touch_all() {
        for (void* block : blocks_) touch(block, size_, page_bytes_);
    }
    void free_all() {
        for (void* block : blocks_) std::free(block);
    }
    void check_memory_at_intervals() {
        unchecked_bytes_ += blocks_.size() * size_;
        if (unchecked_bytes_ < bytes_per_check) return;
        unchecked_bytes_ = 0;
        check_memory(blocks_.size() * size_);
    }
    double per_block() const { return tick_s_ / static_cast<double>(blocks_.size()); }
    void add(Series time, Series faults, const Cost& cost) {
        results_.add(time, cost.time * per_block());
        results_.add(faults, cost.faults / static_cast<double>(blocks_.size()));
    }

    std::size_t size_, page_bytes_;
    double tick_s_;
    SharedResults& results_;
    MappedArray<void*> blocks_;
    std::size_t unchecked_bytes_ = 0;
};

}  // namespace

void run_cycle(const Task& task, SharedResults& results) {
    Nanoseconds deadline = 0;
    std::uint32_t cycles = 0;
    bool should_continue = true;
    std::barrier barrier(static_cast<std::ptrdiff_t>(task.threads), [&]() noexcept {
        if (deadline == 0) deadline = now() + static_cast<Nanoseconds>(task.seconds * 1e9);
        should_continue = (cycles <= task.cycles || now() < deadline) &&
                          results.has_room(Series::malloc, task.threads);
        ++cycles;
    });
    run_in_threads(task.threads, [&](unsigned) {
        Batch batch(task, results);
        barrier.arrive_and_wait();
        batch.cycle(&first_batch_series);
        for (int k = 0; k < (task.size < large_size ? warmup_cycles : 1); ++k) batch.cycle(nullptr);
        for (barrier.arrive_and_wait(); should_continue; barrier.arrive_and_wait()) {
            batch.cycle(&repeated_series);
            batch.malloc_and_touch(Series::malloc_touch);
            batch.measure_pairs();
        }
    });
}

// Times malloc and the stores together in the first batch of a process, since run_cycle() times the
// phases of the first batch separately.
void run_first_batch(const Task& task, SharedResults& results) {
    run_in_threads(task.threads, [&](unsigned) {
        Batch(task, results).malloc_and_touch(Series::malloc_touch_first);
    });
}

}  // namespace assay::alloc
