// A recorded program's calls, made again: one thread for each that was recorded, its calls in their order, and blocks
// that went from one thread to another do so again. The pages of each block are touched once. Left out are the
// program's own work between the calls, and so how its threads met but for what they handed over and for the epochs
// (script.hpp); alignments; and what was mapped without the allocator.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

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
        struct stat about {};
        if (fd < 0 || fstat(fd, &about) != 0) refuse("cannot read %s", path);
        data_ = mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if (data_ == MAP_FAILED || static_cast<std::size_t>(about.st_size) < sizeof(Head) || head().magic != Head::tag)
            refuse("%s is no script of assay-alloc prepare", path);
        const std::size_t whole = sizeof(Head) + head().lanes * sizeof(Lane) + head().operations * sizeof(Operation);
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

// Ticks that two reads of the counter cost by themselves: the mean of many, since some counters go in strides; of the
// quietest hundred.
double clock_cost() {
    constexpr int rounds = 20, reads = 100;
    std::uint64_t least = ~std::uint64_t{0};
    for (int round = 0; round < rounds; ++round) {
        std::uint64_t sum = 0;
        for (int k = 0; k < reads; ++k) {
            const std::uint64_t begin = ticks();
            sum += ticks() - begin;
        }
        least = std::min(least, sum);
    }
    return static_cast<double>(least) / reads;
}

struct Account {
    Histogram calls[call_count];  // ticks, as if they were nanoseconds
    std::uint64_t in_calls = 0, in_touch = 0, faults = 0;  // in_calls with the clock's own cost
};

class Player {
public:
    Player(const Task& task, const Script& script, const Lane& lane, Own<std::atomic<void*>>& shared, Account& account)
        : script_(script), lane_(lane), shared_(shared), account_(account), own_(std::max<std::size_t>(1, lane.slots)), touches_(task.touch != 0) {}

    template <class EndEpoch>
    void play(EndEpoch end_epoch) {
        const std::uint64_t faults = page_faults();
        for (const Operation& one : script_.operations(lane_)) {
            switch (static_cast<Do>(one.what)) {
                case Do::malloc: fill(one, call(Call::malloc, [&] { return std::malloc(one.size); })); break;
                case Do::calloc: fill(one, call(Call::malloc, [&] { return std::calloc(1, one.size); })); break;
                case Do::realloc: reallocate(one); break;
                case Do::free: {
                    void* block = take(one.from);
                    call(Call::free, [&] {
                        std::free(block);
                        return block;
                    });
                    break;
                }
                case Do::epoch:
                    account_.faults = page_faults() - faults;
                    end_epoch();
                    break;
            }
        }
    }

private:
    template <class Work>
    void* call(Call which, Work work) {
        const std::uint64_t begin = ticks();
        void* block = work();
        const std::uint64_t took = ticks() - begin;
        account_.in_calls += took;
        account_.calls[static_cast<std::size_t>(which)].record(static_cast<Nanoseconds>(took > clock_ ? took - clock_ : 0));
        return block;
    }

    void reallocate(const Operation& one) {
        void* from = one.from == no_slot ? nullptr : take(one.from);
        void* to = call(Call::realloc, [&] { return std::realloc(from, one.size); });
        if (one.to != no_slot) fill(one, to);
    }

    void fill(const Operation& one, void* block) {
        if (block == nullptr && one.size != 0) refuse("%llu bytes of the trace were not given", static_cast<unsigned long long>(one.size));
        if (touches_ && block != nullptr) {
            const std::uint64_t begin = ticks();
            touch(block, one.size, page_);
            account_.in_touch += ticks() - begin;
        }
        if ((one.to & shared_slot) == 0) own_[one.to] = block;
        else shared_[one.to & ~shared_slot].store(block != nullptr ? block : nothing(), std::memory_order_release);
    }

    void* take(std::uint32_t slot) {
        if ((slot & shared_slot) == 0) return own_[slot];
        std::atomic<void*>& place = shared_[slot & ~shared_slot];
        void* block = nullptr;
        while ((block = place.load(std::memory_order_acquire)) == nullptr) std::this_thread::yield();
        return block == nothing() ? nullptr : block;
    }
    // In a shared slot: a block of no bytes for which the allocator has given none.
    void* nothing() { return &shared_; }

    const Script& script_;
    const Lane& lane_;
    Own<std::atomic<void*>>& shared_;
    Account& account_;
    Own<void*> own_;
    bool touches_;
    std::size_t page_ = page_bytes();
    std::uint64_t clock_ = static_cast<std::uint64_t>(clock_cost());
};

Order order_of(const Histogram& calls, double tick_s) {
    const Summary s = calls.summary();
    const double scale = tick_s * 1e9;  // the histogram took ticks for nanoseconds
    return {s.n, s.median * scale, s.mad * scale, s.min * scale, s.max * scale, s.p5 * scale, s.p95 * scale, s.p99 * scale};
}

void report(const Task& task, Own<Account>& accounts, Board& board) {
    const auto all = std::make_unique<Account>();
    for (const Account& one : accounts) {
        for (std::size_t k = 0; k < call_count; ++k) all->calls[k].merge(one.calls[k].counts());
        all->in_calls += one.in_calls;
        all->in_touch += one.in_touch;
        all->faults += one.faults;
    }
    std::uint64_t calls = 0;
    for (std::size_t k = 0; k < call_count; ++k) {
        board.calls[k] = order_of(all->calls[k], task.tick_s);
        calls += all->calls[k].total();
    }
    board.add(Series::calls, static_cast<double>(calls));
    const double spent = static_cast<double>(all->in_calls) - static_cast<double>(calls) * clock_cost();
    board.add(Series::in_calls, std::max(0.0, spent) * task.tick_s);
    board.add(Series::in_touch, static_cast<double>(all->in_touch) * task.tick_s);
    board.add(Series::faults, static_cast<double>(all->faults));
}

}  // namespace

void run_replay(const Task& task, Board& board) {
    const Script script(task.script);
    const std::size_t lanes = script.head().lanes;
    check_memory(script.head().peak_live);
    Own<std::atomic<void*>> shared(std::max<std::uint64_t>(1, script.head().shared_slots));
    Own<Account> accounts(lanes);
    const std::uint64_t base = first_look().bytes;
    std::uint64_t peak = 0;
    Nanoseconds begin = 0, looking = 0;
    std::barrier epoch(static_cast<std::ptrdiff_t>(lanes), [&]() noexcept {
        if (begin == 0) {
            begin = now();
            return;
        }
        const Nanoseconds before = now();
        peak = std::max(peak, resident().bytes);
        looking += now() - before;
    });
    on_threads(static_cast<unsigned>(lanes), [&](unsigned k) {
        Player player(task, script, script.lane(k), shared, accounts[k]);
        epoch.arrive_and_wait();
        player.play([&] { epoch.arrive_and_wait(); });
        epoch.arrive_and_drop();
    });
    board.add(Series::wall, seconds(now() - begin - looking));
    const double most = peak > base ? static_cast<double>(peak - base) : 0.0, live = static_cast<double>(script.head().peak_live);
    board.add(Series::peak, most);
    board.add(Series::peak_live, live);
    board.add(Series::peak_over_live, live > 0 ? most / live : 0.0);
    report(task, accounts, board);
}

}  // namespace assay::alloc
