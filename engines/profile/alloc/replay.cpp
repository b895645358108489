// A recorded program's calls, made again: one thread for each that was recorded, its calls in their
// order, and blocks that went from one thread to another do so again. The pages of each block are
// touched once. Left out are the program's own work between the calls, and so how its threads met
// but for what they handed over and for the epochs (script.hpp); alignments; and what was mapped
// without the allocator.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/statistics.hpp"
#include "profile/alloc/measured.hpp"
#include "profile/alloc/script.hpp"

namespace assay::alloc {
namespace {

// The script, in memory before anything is measured.
class Script {
public:
    explicit Script(const char* path) {
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct stat about{};
        if (fd < 0 || fstat(fd, &about) != 0) refuse("cannot read %s", path);
        data_ = mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ,
                     MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if (data_ == MAP_FAILED || static_cast<std::size_t>(about.st_size) < sizeof(Head) ||
            head().magic != Head::tag)
            refuse("%s is no script of assay-alloc prepare", path);
        const std::size_t whole =
            sizeof(Head) + head().lanes * sizeof(Lane) + head().operations * sizeof(Operation);
        if (static_cast<std::size_t>(about.st_size) != whole) refuse("%s is not whole", path);
    }
    const Head& head() const { return *static_cast<const Head*>(data_); }
    const Lane& lane(std::size_t k) const { return reinterpret_cast<const Lane*>(&head() + 1)[k]; }
    std::span<const Operation> operations(const Lane& lane) const {
        const auto* all = reinterpret_cast<const Operation*>(&this->lane(head().lanes));
        return {all + lane.first, lane.count};
    }

private:
    void* data_;
};

// Ticks that two reads of the counter cost by themselves.
std::uint64_t clock_cost() {
    std::uint64_t least = ~std::uint64_t{0};
    for (int k = 0; k < 1000; ++k) {
        const std::uint64_t begin = ticks();
        least = std::min(least, ticks() - begin);
    }
    return least;
}

// How a script is played. A clock around each call costs more than a fast call does: for what the
// calls take together the script is played without one, and once with nothing in place of each
// call, whose time is then taken off.
enum class Mode { nothing, together, each };

struct Account {
    Histogram calls[call_count];  // ticks, as if they were nanoseconds
    std::uint64_t busy = 0;  // ticks between epochs' ends, less waiting for blocks of other threads
    std::uint64_t in_touch = 0;
    std::uint64_t faults = 0;
};

template <Mode mode>
class Player {
public:
    Player(const Task& task, const Script& script, const Lane& lane,
           Own<std::atomic<void*>>& shared, Account& account)
        : script_(script),
          lane_(lane),
          shared_(shared),
          account_(account),
          own_(std::max<std::size_t>(1, lane.slots)),
          touches_(task.touch != 0 && mode != Mode::nothing) {}

    template <class EndEpoch>
    void play(EndEpoch end_epoch) {
        const std::uint64_t faults = page_faults();
        std::uint64_t begin = ticks();
        for (const Operation& one : script_.operations(lane_)) {
            switch (static_cast<Do>(one.what)) {
                case Do::malloc:
                    fill(one, call(Call::malloc, [&] { return std::malloc(one.size); }));
                    break;
                case Do::calloc:
                    fill(one, call(Call::malloc, [&] { return std::calloc(1, one.size); }));
                    break;
                case Do::realloc: reallocate(one); break;
                case Do::free: release(take(one.from)); break;
                case Do::epoch:
                    account_.busy += ticks() - begin - std::exchange(waited_, 0);
                    account_.faults = page_faults() - faults;
                    end_epoch();
                    begin = ticks();
                    break;
            }
        }
    }

private:
    template <class Work>
    void* call(Call which, Work work) {
        if constexpr (mode == Mode::nothing) {
            keep(this);
            return this;
        } else if constexpr (mode == Mode::together) {
            return work();
        } else {
            const std::uint64_t begin = ticks();
            void* block = work();
            const std::uint64_t took = ticks() - begin;
            account_.calls[static_cast<std::size_t>(which)].record(
                static_cast<Nanoseconds>(took > clock_ ? took - clock_ : 0));
            return block;
        }
    }

    void release(void* block) {
        call(Call::free, [&] {
            std::free(block);
            return block;
        });
    }

    void reallocate(const Operation& one) {
        void* from = one.from == no_slot ? nullptr : take(one.from);
        fill(one, call(Call::realloc, [&] { return std::realloc(from, one.size); }));
    }

    void fill(const Operation& one, void* block) {
        if (__builtin_expect(block == nullptr, 0)) {
            if (one.size != 0)
                refuse("%llu bytes of the trace were not given",
                       static_cast<unsigned long long>(one.size));
            block = nothing();
        } else if (touches_) {
            touch_block(block, one.size);
        }
        if ((one.to & shared_slot) == 0) own_[one.to] = block;
        else shared_[one.to & ~shared_slot].store(block, std::memory_order_release);
    }

    void touch_block(void* block, std::size_t size) {
        const std::uint64_t begin = mode == Mode::each ? ticks() : 0;
        touch(block, size, page_);
        if constexpr (mode == Mode::each) account_.in_touch += ticks() - begin;
    }

    void* take(std::uint32_t slot) {
        void* block =
            (slot & shared_slot) == 0 ? own_[slot] : taken_over(shared_[slot & ~shared_slot]);
        return block == nothing() ? nullptr : block;
    }

    void* taken_over(std::atomic<void*>& place) {
        void* block = place.load(std::memory_order_acquire);
        if (block != nullptr) return block;
        const std::uint64_t begin = ticks();
        while ((block = place.load(std::memory_order_acquire)) == nullptr)
            std::this_thread::yield();
        waited_ += ticks() - begin;
        return block;
    }
    // In a slot: a block of no bytes for which the allocator has given none.
    void* nothing() { return &shared_; }

    const Script& script_;
    const Lane& lane_;
    Own<std::atomic<void*>>& shared_;
    Account& account_;
    Own<void*> own_;
    bool touches_;
    std::size_t page_ = page_bytes();
    std::uint64_t clock_ = clock_cost(), waited_ = 0;
};

// What all threads of a playing saw together.
struct Outcome {
    std::uint64_t peak = 0;  // resident
    double wall = 0;         // seconds, without the looks at what is resident
};

template <Mode mode>
Outcome played(const Task& task, const Script& script, Own<Account>& accounts) {
    const std::size_t lanes = script.head().lanes;
    Own<std::atomic<void*>> shared(std::max<std::uint64_t>(1, script.head().shared_slots));
    std::uint64_t base = first_look().bytes;
    Outcome outcome;
    Nanoseconds begin = 0, end = 0, looking = 0;
    std::barrier epoch(static_cast<std::ptrdiff_t>(lanes), [&]() noexcept {
        end = now();
        if (begin == 0) {  // all threads and what is theirs are there
            base = resident().bytes;
            begin = now();
        } else if (mode != Mode::nothing) {
            outcome.peak = std::max(outcome.peak, resident().bytes);
            looking += now() - end;
        }
    });
    on_threads(static_cast<unsigned>(lanes), [&](unsigned k) {
        Player<mode> player(task, script, script.lane(k), shared, accounts[k]);
        epoch.arrive_and_wait();
        player.play([&] { epoch.arrive_and_wait(); });
        epoch.arrive_and_drop();
    });
    outcome.peak -= std::min(outcome.peak, base);
    outcome.wall = seconds(std::max<Nanoseconds>(0, end - begin - looking));
    return outcome;
}

Order order_of(const Histogram& calls, double tick_s) {
    const Summary s = calls.summary();
    const double scale = tick_s * 1e9;  // the histogram took ticks for nanoseconds
    return {s.n,           s.median * scale, s.mad * scale, s.min * scale,
            s.max * scale, s.p5 * scale,     s.p95 * scale, s.p99 * scale};
}

void report_each(const Task& task, Own<Account>& accounts, Board& board) {
    const auto all = std::make_unique<Account>();
    for (const Account& one : accounts) {
        for (std::size_t k = 0; k < call_count; ++k) all->calls[k].merge(one.calls[k].counts());
        all->in_touch += one.in_touch;
    }
    for (std::size_t k = 0; k < call_count; ++k)
        board.calls[k] = order_of(all->calls[k], task.tick_s);
    board.add(Series::in_touch, static_cast<double>(all->in_touch) * task.tick_s);
}

double busy(Own<Account>& accounts, double tick_s) {
    std::uint64_t sum = 0;
    for (const Account& one : accounts) sum += one.busy;
    return static_cast<double>(sum) * tick_s;
}

void play_together(const Task& task, const Script& script, Board& board) {
    Own<Account> of_nothing(script.head().lanes), accounts(script.head().lanes);
    played<Mode::nothing>(task, script, of_nothing);
    const Outcome outcome = played<Mode::together>(task, script, accounts);
    std::uint64_t faults = 0;
    for (const Account& one : accounts) faults += one.faults;
    const Head& head = script.head();
    const auto peak = static_cast<double>(outcome.peak), live = static_cast<double>(head.peak_live);
    board.add(Series::in_calls,
              std::max(0.0, busy(accounts, task.tick_s) - busy(of_nothing, task.tick_s)));
    board.add(Series::calls, static_cast<double>(head.mallocs + head.reallocs + head.frees));
    board.add(Series::wall, outcome.wall);
    board.add(Series::faults, static_cast<double>(faults));
    board.add(Series::peak, peak);
    board.add(Series::peak_live, live);
    board.add(Series::peak_over_live, live > 0 ? peak / live : 0.0);
}

}  // namespace

void run_replay(const Task& task, Board& board) {
    const Script script(task.script);
    check_memory(script.head().peak_live);
    if (task.each == 0) return play_together(task, script, board);
    Own<Account> accounts(script.head().lanes);
    played<Mode::each>(task, script, accounts);
    report_each(task, accounts, board);
}

}  // namespace assay::alloc
