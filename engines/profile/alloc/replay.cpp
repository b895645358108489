// The measurement `replay`: repeats the allocation calls of a recorded program. One thread per
// recorded thread makes the calls of that thread in order, and frees the blocks that it freed, also
// those of other threads. The pages of each block are touched once. The work of the program between
// the calls is not replayed, so that threads synchronise only through handed-over blocks and epochs
// (script.hpp). Alignments, and memory that was mapped without the allocator, are not replayed
// either.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/statistics.hpp"
#include "profile/alloc/measured_process.hpp"
#include "profile/alloc/script.hpp"

namespace assay::alloc {
namespace {

// The script. It is mapped and read before the measurement.
class Script {
public:
    explicit Script(const char* path) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat status{};
        if (fd < 0 || fstat(fd, &status) != 0) waive("cannot read %s", path);
        data_ = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                     MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if (data_ == MAP_FAILED ||
            static_cast<std::size_t>(status.st_size) < sizeof(ScriptHeader) ||
            header().magic != ScriptHeader::tag)
            waive("%s is not a script of assay-alloc prepare", path);
        const std::size_t expected_bytes = sizeof(ScriptHeader) +
                                           header().threads * sizeof(ThreadTrace) +
                                           header().operations * sizeof(Operation);
        if (static_cast<std::size_t>(status.st_size) != expected_bytes)
            waive("%s is incomplete", path);
    }
    const ScriptHeader& header() const { return *static_cast<const ScriptHeader*>(data_); }
    const ThreadTrace& thread(std::size_t k) const {
        return reinterpret_cast<const ThreadTrace*>(&header() + 1)[k];
    }
    std::span<const Operation> operations(const ThreadTrace& thread) const {
        const auto* operations =
            reinterpret_cast<const Operation*>(&this->thread(header().threads));
        return {operations + thread.first, thread.count};
    }

private:
    void* data_;
};

// The minimum number of ticks between two successive readings of the counter.
std::uint64_t measure_clock_ticks() {
    std::uint64_t min_ticks = ~std::uint64_t{0};
    for (int k = 0; k < 1000; ++k) {
        const std::uint64_t begin = ticks();
        min_ticks = std::min(min_ticks, ticks() - begin);
    }
    return min_ticks;
}

// The modes of a replay. Reading the clock takes longer than a fast call. Therefore the total time
// of all calls is measured without clocks around the calls (untimed), minus the time of a replay
// without calls (empty). The times of single calls come from a third replay (timed).
enum class Mode { empty, untimed, timed };

struct ThreadTimes {
    Histogram calls[call_count];   // ticks, recorded as nanoseconds
    std::uint64_t busy_ticks = 0;  // within epochs, without waits for blocks
    std::uint64_t touch_ticks = 0;
    std::uint64_t faults = 0;
};

template <Mode mode>
class Player {
public:
    Player(const Task& task, const Script& script, const ThreadTrace& thread,
           MappedArray<std::atomic<void*>>& shared_blocks, ThreadTimes& times)
        : script_(script),
          thread_(thread),
          shared_blocks_(shared_blocks),
          times_(times),
          slots_(std::max<std::size_t>(1, thread.slots)),
          touches_(task.touch != 0 && mode != Mode::empty) {}

    template <class EndEpoch>
    void play(EndEpoch end_epoch) {
        const std::uint64_t faults = page_faults();
        std::uint64_t begin = ticks();
        for (const Operation& operation : script_.operations(thread_)) {
            switch (static_cast<OperationKind>(operation.kind)) {
                case OperationKind::malloc:
                    store_block(operation,
                                call(Call::malloc, [&] { return std::malloc(operation.size); }));
                    break;
                case OperationKind::calloc:
                    store_block(operation,
                                call(Call::malloc, [&] { return std::calloc(1, operation.size); }));
                    break;
                case OperationKind::realloc: reallocate(operation); break;
                case OperationKind::free: release(take_block(operation.freed_slot)); break;
                case OperationKind::end_epoch:
                    times_.busy_ticks += ticks() - begin - std::exchange(waiting_ticks_, 0);
                    times_.faults = page_faults() - faults;
                    end_epoch();
                    begin = ticks();
                    break;
            }
        }
    }

private:
    template <class Work>
    void* call(Call kind, Work work) {
        if constexpr (mode == Mode::empty) {
            do_not_optimize(this);
            return this;
        } else if constexpr (mode == Mode::untimed) {
            return work();
        } else {
            const std::uint64_t begin = ticks();
            void* block = work();
            const std::uint64_t duration = ticks() - begin;
            times_.calls[static_cast<std::size_t>(kind)].record(
                static_cast<Nanoseconds>(duration > clock_ticks_ ? duration - clock_ticks_ : 0));
            return block;
        }
    }

    void release(void* block) {
        call(Call::free, [&] {
            std::free(block);
            return block;
        });
    }

    void reallocate(const Operation& operation) {
        void* old_block =
            operation.freed_slot == no_slot ? nullptr : take_block(operation.freed_slot);
        store_block(operation,
                    call(Call::realloc, [&] { return std::realloc(old_block, operation.size); }));
    }

    void store_block(const Operation& operation, void* block) {
        if (__builtin_expect(block == nullptr, 0)) {
            if (operation.size != 0)
                waive("an allocation of %llu bytes failed",
                      static_cast<unsigned long long>(operation.size));
            block = null_marker();
        } else if (touches_) {
            touch_block(block, operation.size);
        }
        if ((operation.filled_slot & shared_slot) == 0) slots_[operation.filled_slot] = block;
        else
            shared_blocks_[operation.filled_slot & ~shared_slot].store(block,
                                                                       std::memory_order_release);
    }

    void touch_block(void* block, std::size_t size) {
        const std::uint64_t begin = mode == Mode::timed ? ticks() : 0;
        touch(block, size, page_bytes_);
        if constexpr (mode == Mode::timed) times_.touch_ticks += ticks() - begin;
    }

    void* take_block(std::uint32_t slot) {
        void* block = (slot & shared_slot) == 0
                          ? slots_[slot]
                          : wait_for_block(shared_blocks_[slot & ~shared_slot]);
        return block == null_marker() ? nullptr : block;
    }

    void* wait_for_block(std::atomic<void*>& slot) {
        void* block = slot.load(std::memory_order_acquire);
        if (block != nullptr) return block;
        const std::uint64_t begin = ticks();
        while ((block = slot.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        waiting_ticks_ += ticks() - begin;
        return block;
    }
    // The content of a slot if the allocator has returned null for zero bytes.
    void* null_marker() { return &shared_blocks_; }

    const Script& script_;
    const ThreadTrace& thread_;
    MappedArray<std::atomic<void*>>& shared_blocks_;
    ThreadTimes& times_;
    MappedArray<void*> slots_;
    bool touches_;
    std::size_t page_bytes_ = page_bytes();
    std::uint64_t clock_ticks_ = measure_clock_ticks(), waiting_ticks_ = 0;
};

// The results of a replay, over all threads.
struct ReplayResult {
    std::uint64_t peak = 0;  // resident
    double wall = 0;         // seconds, without reading the resident memory
};

template <Mode mode>
ReplayResult play_script(const Task& task, const Script& script, MappedArray<ThreadTimes>& times) {
    const std::size_t threads = script.header().threads;
    MappedArray<std::atomic<void*>> shared_blocks(
        std::max<std::uint64_t>(1, script.header().shared_slots));
    std::uint64_t bytes_at_start = resident_at_start().bytes;
    ReplayResult result;
    Nanoseconds begin = 0, end = 0, reading_time = 0;
    std::barrier epoch(static_cast<std::ptrdiff_t>(threads), [&]() noexcept {
        end = now();
        if (begin == 0) {  // all threads have created their slots
            bytes_at_start = resident_memory().bytes;
            begin = now();
        } else if (mode != Mode::empty) {
            result.peak = std::max(result.peak, resident_memory().bytes);
            reading_time += now() - end;
        }
    });
    run_in_threads(static_cast<unsigned>(threads), [&](unsigned k) {
        Player<mode> player(task, script, script.thread(k), shared_blocks, times[k]);
        epoch.arrive_and_wait();
        player.play([&] { epoch.arrive_and_wait(); });
        epoch.arrive_and_drop();
    });
    result.peak -= std::min(result.peak, bytes_at_start);
    result.wall = seconds(std::max<Nanoseconds>(0, end - begin - reading_time));
    return result;
}

OrderStatistics order_statistics(const Histogram& calls, double tick_s) {
    const Summary summary = calls.summary();
    const double scale = tick_s * 1e9;  // the histogram holds ticks as nanoseconds
    return {summary.n,           summary.median * scale, summary.mad * scale, summary.min * scale,
            summary.max * scale, summary.p5 * scale,     summary.p95 * scale, summary.p99 * scale};
}

void report_timed_calls(const Task& task, MappedArray<ThreadTimes>& times, SharedResults& results) {
    const auto total = std::make_unique<ThreadTimes>();
    for (const ThreadTimes& thread : times) {
        for (std::size_t k = 0; k < call_count; ++k)
            total->calls[k].merge(thread.calls[k].counts());
        total->touch_ticks += thread.touch_ticks;
    }
    for (std::size_t k = 0; k < call_count; ++k)
        results.calls[k] = order_statistics(total->calls[k], task.tick_s);
    results.add(Series::in_touch, static_cast<double>(total->touch_ticks) * task.tick_s);
}

double busy_seconds(MappedArray<ThreadTimes>& times, double tick_s) {
    std::uint64_t sum = 0;
    for (const ThreadTimes& thread : times) sum += thread.busy_ticks;
    return static_cast<double>(sum) * tick_s;
}

void replay_untimed(const Task& task, const Script& script, SharedResults& results) {
    MappedArray<ThreadTimes> empty_times(script.header().threads), times(script.header().threads);
    play_script<Mode::empty>(task, script, empty_times);
    const ReplayResult result = play_script<Mode::untimed>(task, script, times);
    std::uint64_t faults = 0;
    for (const ThreadTimes& thread : times) faults += thread.faults;
    const ScriptHeader& header = script.header();
    const auto peak = static_cast<double>(result.peak),
               live = static_cast<double>(header.peak_live);
    results.add(Series::in_calls, std::max(0.0, busy_seconds(times, task.tick_s) -
                                                    busy_seconds(empty_times, task.tick_s)));
    results.add(Series::calls,
                static_cast<double>(header.mallocs + header.reallocs + header.frees));
    results.add(Series::wall, result.wall);
    results.add(Series::faults, static_cast<double>(faults));
    results.add(Series::peak, peak);
    results.add(Series::peak_live, live);
    results.add(Series::peak_over_live, live > 0 ? peak / live : 0.0);
}

}  // namespace

void run_replay(const Task& task, SharedResults& results) {
    const Script script(task.script);
    check_memory(script.header().peak_live);
    if (task.time_calls == 0) return replay_untimed(task, script, results);
    MappedArray<ThreadTimes> times(script.header().threads);
    play_script<Mode::timed>(task, script, times);
    report_timed_calls(task, times, results);
}

}  // namespace assay::alloc
