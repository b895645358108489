// Blocks of one size: malloc, first touch, touch again and free, each timed apart, with the page
// faults of each.
//
// A batch of blocks goes through each phase together, so that the clock costs nothing even of 16
// bytes. The first batch of a process shows what fresh memory costs; the next ones, after some to
// warm up, what the allocator makes of memory that it has been given back. In between: the same
// with one clock around malloc and the stores together, which is how the cost of a large block
// shows, and pairs of malloc and free, which are the fastest that there is.
#include "profile/alloc/measured.hpp"

namespace assay::alloc {
namespace {

constexpr int warm_up = 3;              // cycles: glibc finds its threshold for mmap in two
constexpr std::size_t large = 1 << 30;  // bytes, from where on a cycle takes long
constexpr std::size_t most_pairs = 1000;
constexpr std::size_t watched = 64 << 20;  // bytes asked for between two looks at what is left

struct Phases {
    Series malloc, touch, retouch, free;
    Series malloc_faults, touch_faults, retouch_faults, free_faults;
};
constexpr Phases fresh{Series::malloc_first,         Series::touch_first,
                       Series::retouch_first,        Series::free_first,
                       Series::malloc_faults_first,  Series::touch_faults_first,
                       Series::retouch_faults_first, Series::free_faults_first};
constexpr Phases repeated{Series::malloc,         Series::touch,         Series::retouch,
                          Series::free,           Series::malloc_faults, Series::touch_faults,
                          Series::retouch_faults, Series::free_faults};

// One thread's blocks, and what it does to them.
class Batch {
public:
    Batch(const Task& task, Board& board)
        : size_(task.size),
          page_(page_bytes()),
          tick_s_(task.tick_s),
          board_(board),
          blocks_(batch_of(task.size)) {}

    void cycle(const Phases* into) {
        watch();
        const Cost malloc = timed([&] { allocate(); });
        const Cost first = timed([&] { touch_all(); });
        const Cost again = timed([&] { touch_all(); });
        const Cost free = timed([&] { free_all(); });
        if (into == nullptr) return;
        add(into->malloc, into->malloc_faults, malloc);
        add(into->touch, into->touch_faults, first);
        add(into->retouch, into->retouch_faults, again);
        add(into->free, into->free_faults, free);
    }

    void malloc_and_touch(Series into) {
        watch();
        const Cost both = timed([&] {
            for (void*& block : blocks_) touch(block = given(size_), size_, page_);
        });
        free_all();
        board_.add(into, both.time * per_block());
    }

    void pairs() {
        const std::size_t count = size_ <= (32 << 10) ? most_pairs : 16;
        watch();
        const Cost pair = timed([&] {
            for (std::size_t k = 0; k < count; ++k) {
                void* block = given(size_);
                keep(block);
                std::free(block);
            }
        });
        const Cost nothing = timed([&] {
            for (std::size_t k = 0; k < count; ++k) keep(&board_);
        });
        board_.add(Series::pair, pair.time * tick_s_ / static_cast<double>(count));
        board_.add(Series::overhead, nothing.time * tick_s_ / static_cast<double>(count));
    }

private:
    struct Cost {
        double time;  // ticks
        double faults;
    };

    template <class Work>
    static Cost timed(Work work) {
        const std::uint64_t faults = page_faults(), begin = ticks();
        work();
        const std::uint64_t end = ticks();
        return {static_cast<double>(end - begin), static_cast<double>(page_faults() - faults)};
    }

    void allocate() {
        for (void*& block : blocks_) keep(block = given(size_));
    }
    void touch_all() {
        for (void* block : blocks_) touch(block, size_, page_);
    }
    void free_all() {
        for (void* block : blocks_) std::free(block);
    }
    void watch() {
        asked_ += blocks_.size() * size_;
        if (asked_ < watched) return;
        asked_ = 0;
        check_memory(blocks_.size() * size_);
    }
    double per_block() const { return tick_s_ / static_cast<double>(blocks_.size()); }
    void add(Series time, Series faults, const Cost& cost) {
        board_.add(time, cost.time * per_block());
        board_.add(faults, cost.faults / static_cast<double>(blocks_.size()));
    }

    std::size_t size_, page_;
    double tick_s_;
    Board& board_;
    Own<void*> blocks_;
    std::size_t asked_ = 0;
};

}  // namespace

void run_cycle(const Task& task, Board& board) {
    Nanoseconds until = 0;
    std::uint32_t cycles = 0;
    bool more = true;
    std::barrier together(static_cast<std::ptrdiff_t>(task.threads), [&]() noexcept {
        if (until == 0) until = now() + static_cast<Nanoseconds>(task.seconds * 1e9);
        more = (cycles <= task.cycles || now() < until) &&
               board.has_room(Series::malloc, task.threads);
        ++cycles;
    });
    on_threads(task.threads, [&](unsigned) {
        Batch batch(task, board);
        together.arrive_and_wait();
        batch.cycle(&fresh);
        for (int k = 0; k < (task.size < large ? warm_up : 1); ++k) batch.cycle(nullptr);
        for (together.arrive_and_wait(); more; together.arrive_and_wait()) {
            batch.cycle(&repeated);
            batch.malloc_and_touch(Series::malloc_touch);
            batch.pairs();
        }
    });
}

// The first batch of a process, with one clock around both: what the cycle above cannot ask a
// second time.
void run_touched(const Task& task, Board& board) {
    on_threads(task.threads,
               [&](unsigned) { Batch(task, board).malloc_and_touch(Series::malloc_touch_first); });
}

}  // namespace assay::alloc
