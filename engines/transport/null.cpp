#include "transport/null.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <tuple>

#include "core/error.hpp"

namespace assay {
namespace {

// Other tags are acknowledgements; see Faults::Flip.
constexpr int payload_tag = 1;

// Simulated time that passes when nothing is under way, so that the ranks' time limits expire.
constexpr Nanoseconds idle_step = 100'000'000;

struct Posted {
    void* data;
    std::size_t bytes;
    int rank;
    Ticket ticket;
};

// The shared state of all ranks, under one lock.
class Fabric {
public:
    Fabric(int ranks, Faults faults)
        : faults_(std::move(faults)), states_(static_cast<std::size_t>(ranks)), active_(ranks) {}

    int size() const { return static_cast<int>(states_.size()); }
    bool simulated() const { return faults_.simulated_time; }
    Nanoseconds clock();

    Ticket post_send(int rank, const void* data, std::size_t bytes, int peer, int tag);
    Ticket post_receive(int rank, void* data, std::size_t bytes, int peer, int tag);
    Ticket get(int rank, void* data, std::size_t bytes, int peer, std::size_t offset);
    void put(int rank, const void* data, std::size_t bytes, int peer, std::size_t offset);
    void flush(int rank, int peer);
    void poll(int rank, std::vector<Ticket>& completed);
    std::byte* create_window(int rank, std::size_t bytes);

    void begin_reduction(int rank, std::span<double> values, bool sum);
    bool test_reduction(int rank);
    std::vector<std::string> gather(int rank, const std::string& value);
    void broadcast(int rank, std::string& value);
    void leave();          // a rank has ended
    void end(int status);  // makes the next call of every rank throw Aborted
    [[noreturn]] void abort(int status) {
        end(status);
        throw Aborted(status);
    }

private:
    struct Pending {
        Ticket ticket;
        Nanoseconds due;
    };
    struct RankState {
        std::vector<std::byte> window;
        std::vector<Pending> pending;
        std::vector<Ticket> free;
        Ticket next = 0;
        std::uint64_t posted = 0;
        Nanoseconds transmit_free = 0, receive_free = 0;
        std::map<int, Nanoseconds> puts_due;  // by peer
        std::uint64_t collectives = 0;        // number begun
        std::span<double> reduction;
    };
    struct Collective {
        int begun = 0, ended = 0;
        std::vector<double> values;
        std::vector<std::string> texts;
    };
    using Lock = std::unique_lock<std::mutex>;

    RankState& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
    Ticket take_ticket(RankState& m) {
        if (m.free.empty()) return m.next++;
        const Ticket ticket = m.free.back();
        m.free.pop_back();
        return ticket;
    }
    void check_aborted() const {
        if (aborted_) throw Aborted(status_);
    }
    bool silent(int rank) {
        const auto entry = faults_.silent_after.find(rank);
        return entry != faults_.silent_after.end() && state(rank).posted > entry->second;
    }
    // A silent rank blocks inside its call until the job is ended.
    void count_operation(Lock& lock, int rank) {
        ++state(rank).posted;
        if (!silent(rank)) return;
        wait_until(lock, [] { return false; });
    }
    double rate(const std::map<int, double>& sides, int rank) const {
        const auto entry = sides.find(rank);
        return entry == sides.end() ? faults_.rate : entry->second;
    }
    // Copies the data. Returns when the source and the destination complete the operation.
    std::pair<Nanoseconds, Nanoseconds> transfer(int source, int destination, const void* from,
                                                 void* to, std::size_t bytes, bool payload);
    Collective& current_collective(int rank) { return collectives_[state(rank).collectives]; }
    void leave_collective(std::uint64_t number) {
        if (++collectives_[number].ended == size()) collectives_.erase(number);
    }
    Nanoseconds time() const { return simulated() ? time_ : now(); }
    // Every waiting rank looks again whether it can go on.
    void wake() {
        waiting_ = 0;
        ++changes_;
        changed_.notify_all();
    }
    // Time passes when the last rank begins to wait.
    template <class Ready>
    void wait_until(Lock& lock, Ready ready) {
        while (!aborted_ && !ready()) {
            if (++waiting_ == active_ && simulated()) advance_time();
            else changed_.wait(lock, [this, seen = changes_] { return changes_ != seen; });
        }
        check_aborted();
    }
    // Also ends when nothing is under way: the caller then checks its time limit.
    template <class Ready>
    void wait_until_or_idle(Lock& lock, Ready ready) {
        wait_until(lock, [&, seen = idle_steps_] { return idle_steps_ != seen || ready(); });
    }
    void advance_time();

    const Faults faults_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<RankState> states_;
    using Match = std::tuple<int, int, int>;  // source, destination, tag
    std::map<Match, std::deque<Posted>> sends_, receives_;
    std::map<std::pair<int, int>, std::uint64_t> payloads_;
    std::map<std::uint64_t, Collective> collectives_;
    bool aborted_ = false;
    int status_ = 0;
    int active_, waiting_ = 0;   // ranks that have not ended; those that wait since the last wake()
    std::uint64_t changes_ = 0;  // calls of wake()
    std::uint64_t idle_steps_ = 0;
    Nanoseconds time_ = 0;  // simulated
};

Nanoseconds Fabric::clock() {
    if (!simulated()) return now();
    const Lock lock(mutex_);
    return time_;
}

// To the next completion of any rank.
void Fabric::advance_time() {
    Nanoseconds next = std::numeric_limits<Nanoseconds>::max();
    const auto consider = [&](Nanoseconds due) {
        if (due > time_) next = std::min(next, due);
    };
    for (const RankState& rank : states_) {
        for (const Pending& pending : rank.pending) consider(pending.due);
        for (const auto& [peer, due] : rank.puts_due) consider(due);
    }
    if (next == std::numeric_limits<Nanoseconds>::max()) {
        next = time_ + idle_step;
        ++idle_steps_;
    }
    time_ = next;
    wake();
}

void Fabric::leave() {
    const Lock lock(mutex_);
    --active_;
    wake();
}

std::pair<Nanoseconds, Nanoseconds> Fabric::transfer(int source, int destination, const void* from,
                                                     void* to, std::size_t bytes, bool payload) {
    std::memcpy(to, from, bytes);
    if (payload) {
        const std::uint64_t number = payloads_[{source, destination}]++;
        for (const Faults::Flip& flip : faults_.flips)
            if (flip.source == source && flip.destination == destination && flip.message == number)
                static_cast<std::byte*>(to)[flip.offset] ^= std::byte{16};
    }
    const auto duration = [&](double rate) {
        return rate > 0 ? static_cast<Nanoseconds>(static_cast<double>(bytes) / rate * 1e9) : 0;
    };
    const Nanoseconds t = time();
    RankState &sender = state(source), &receiver = state(destination);
    sender.transmit_free =
        std::max(t, sender.transmit_free) + duration(rate(faults_.transmit, source));
    receiver.receive_free =
        std::max({t, receiver.receive_free + duration(rate(faults_.receive, destination)),
                  sender.transmit_free, t + duration(rate(faults_.receive, destination))});
    wake();
    return {sender.transmit_free, receiver.receive_free + faults_.delay};
}

Ticket Fabric::post_send(int rank, const void* data, std::size_t bytes, int peer, int tag) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    auto& waiting = receives_[{rank, peer, tag}];
    if (waiting.empty()) {
        sends_[{rank, peer, tag}].push_back({const_cast<void*>(data), bytes, rank, ticket});
        return ticket;
    }
    const Posted receive = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] =
        transfer(rank, peer, data, receive.data, bytes, tag == payload_tag);
    state(rank).pending.push_back({ticket, sent});
    state(peer).pending.push_back({receive.ticket, arrived});
    return ticket;
}

Ticket Fabric::post_receive(int rank, void* data, std::size_t bytes, int peer, int tag) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    auto& waiting = sends_[{peer, rank, tag}];
    if (waiting.empty()) {
        receives_[{peer, rank, tag}].push_back({data, bytes, rank, ticket});
        return ticket;
    }
    const Posted send = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] =
        transfer(peer, rank, send.data, data, std::min(bytes, send.bytes), tag == payload_tag);
    state(peer).pending.push_back({send.ticket, sent});
    state(rank).pending.push_back({ticket, arrived});
    return ticket;
}

Ticket Fabric::get(int rank, void* data, std::size_t bytes, int peer, std::size_t offset) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    const auto [sent, arrived] =
        transfer(peer, rank, state(peer).window.data() + offset, data, bytes, true);
    state(rank).pending.push_back({ticket, arrived});
    return ticket;
}

void Fabric::put(int rank, const void* data, std::size_t bytes, int peer, std::size_t offset) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const auto [sent, arrived] =
        transfer(rank, peer, data, state(peer).window.data() + offset, bytes, true);
    Nanoseconds& due = state(rank).puts_due[peer];
    due = std::max(due, arrived);
}

void Fabric::flush(int rank, int peer) {
    Nanoseconds due = 0;
    {
        Lock lock(mutex_);
        check_aborted();
        due = state(rank).puts_due[peer];
        if (simulated()) wait_until(lock, [&] { return time_ >= due; });
    }
    while (!simulated() && now() < due) sched_yield();
}

void Fabric::poll(int rank, std::vector<Ticket>& completed) {
    Lock lock(mutex_);
    check_aborted();
    RankState& m = state(rank);
    if (simulated())
        wait_until_or_idle(lock, [&] {
            return std::ranges::any_of(m.pending, [&](const Pending& p) { return p.due <= time_; });
        });
    const Nanoseconds t = time();
    std::erase_if(m.pending, [&](const Pending& pending) {
        if (pending.due > t) return false;
        completed.push_back(pending.ticket);
        m.free.push_back(pending.ticket);
        return true;
    });
}

std::byte* Fabric::create_window(int rank, std::size_t bytes) {
    const Lock lock(mutex_);
    state(rank).window.resize(bytes);
    return state(rank).window.data();
}

void Fabric::begin_reduction(int rank, std::span<double> values, bool sum) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    state(rank).reduction = values;
    Collective& c = current_collective(rank);
    if (c.begun++ == 0) {
        c.values.assign(values.begin(), values.end());
    } else {
        for (std::size_t i = 0; i < values.size(); ++i)
            c.values[i] = sum ? c.values[i] + values[i] : std::max(c.values[i], values[i]);
    }
    wake();
}

bool Fabric::test_reduction(int rank) {
    Lock lock(mutex_);
    check_aborted();
    Collective& c = current_collective(rank);
    if (simulated()) wait_until_or_idle(lock, [&] { return c.begun == size(); });
    if (c.begun < size()) return false;
    std::ranges::copy(c.values, state(rank).reduction.begin());
    leave_collective(state(rank).collectives++);
    return true;
}

std::vector<std::string> Fabric::gather(int rank, const std::string& value) {
    Lock lock(mutex_);
    check_aborted();
    const std::uint64_t number = state(rank).collectives++;
    Collective& c = collectives_[number];
    c.texts.resize(states_.size());
    c.texts[static_cast<std::size_t>(rank)] = value;
    ++c.begun;
    wake();
    wait_until(lock, [&] { return c.begun == size(); });
    std::vector<std::string> parts;
    if (rank == 0) parts = c.texts;
    leave_collective(number);
    return parts;
}

void Fabric::broadcast(int rank, std::string& value) {
    Lock lock(mutex_);
    check_aborted();
    const std::uint64_t number = state(rank).collectives++;
    Collective& c = collectives_[number];
    if (rank == 0) {
        c.texts = {value};
        wake();
    }
    wait_until(lock, [&] { return !c.texts.empty(); });
    value = c.texts.front();
    leave_collective(number);
}

void Fabric::end(int status) {
    const Lock lock(mutex_);
    if (!aborted_) status_ = status;
    aborted_ = true;
    wake();
}

class NullRank final : public Transport {
public:
    NullRank(Fabric& fabric, int rank) : fabric_(fabric), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return fabric_.size(); }
    std::string library() const override { return "null"; }
    bool simulated() const override { return fabric_.simulated(); }
    Nanoseconds clock() const override { return fabric_.clock(); }
    Ticket send(const void* data, std::size_t bytes, int peer, int tag) override {
        return fabric_.post_send(rank_, data, bytes, peer, tag);
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) override {
        return fabric_.post_receive(rank_, data, bytes, peer, tag);
    }
    Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) override {
        return fabric_.get(rank_, data, bytes, peer, offset);
    }
    void put(const void* data, std::size_t bytes, int peer, std::size_t offset) override {
        fabric_.put(rank_, data, bytes, peer, offset);
    }
    void flush(int peer) override { fabric_.flush(rank_, peer); }
    void poll(std::vector<Ticket>& completed) override { fabric_.poll(rank_, completed); }
    std::byte* create_window(std::size_t bytes) override {
        return fabric_.create_window(rank_, bytes);
    }
    void free_window() override {}
    void begin_sum(std::span<double> values) override {
        fabric_.begin_reduction(rank_, values, true);
    }
    void begin_max(std::span<double> values) override {
        fabric_.begin_reduction(rank_, values, false);
    }
    bool test_collective() override { return fabric_.test_reduction(rank_); }
    std::vector<std::string> gather(const std::string& value) override {
        return fabric_.gather(rank_, value);
    }
    void broadcast(std::string& value) override { fabric_.broadcast(rank_, value); }
    [[noreturn]] void abort(int status) override { fabric_.abort(status); }

private:
    Fabric& fabric_;
    const int rank_;
};

class InstantTransport final : public Transport {
public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    std::string library() const override { return "instant"; }
    Ticket send(const void*, std::size_t, int, int) override { return post(); }
    Ticket receive(void*, std::size_t, int, int) override { return post(); }
    Ticket get(void*, std::size_t, int, std::size_t) override { return post(); }
    void put(const void*, std::size_t, int, std::size_t) override {}
    void flush(int) override {}
    void poll(std::vector<Ticket>& completed) override {
        for (Ticket ticket = 0; ticket < posted_; ++ticket) completed.push_back(ticket);
        posted_ = 0;
    }
    std::byte* create_window(std::size_t bytes) override {
        window_.resize(bytes);
        return window_.data();
    }
    void free_window() override {}
    void begin_sum(std::span<double>) override {}
    void begin_max(std::span<double>) override {}
    bool test_collective() override { return true; }
    std::vector<std::string> gather(const std::string& value) override { return {value, value}; }
    void broadcast(std::string&) override {}
    [[noreturn]] void abort(int status) override { throw Aborted(status); }

private:
    Ticket post() { return posted_++; }
    Ticket posted_ = 0;
    std::vector<std::byte> window_;
};

}  // namespace

void run_null_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body) {
    Fabric fabric(ranks, faults);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    {
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                NullRank transport(fabric, rank);
                try {
                    body(transport);
                } catch (...) {
                    errors[static_cast<std::size_t>(rank)] = std::current_exception();
                    fabric.end(2);  // the other ranks would wait for this one
                }
                fabric.leave();
            });
    }
    std::exception_ptr aborted;
    for (const std::exception_ptr& error : errors) {
        if (!error) continue;
        try {
            std::rethrow_exception(error);
        } catch (const Aborted&) {
            aborted = error;
        }
    }
    if (aborted) std::rethrow_exception(aborted);
}

std::unique_ptr<Transport> instant_transport() { return std::make_unique<InstantTransport>(); }

void for_each_null_rank(const std::function<void(Transport&)>& body) {
    const char* text = std::getenv("ASSAY_NULL_RANKS");
    const long ranks = text ? std::strtol(text, nullptr, 10) : 1;
    if (ranks < 1 || ranks > 1024)
        throw Error("ASSAY_NULL_RANKS is not a number of ranks", "give 1 to 1024");
    run_null_ranks(static_cast<int>(ranks), {}, body);
}

}  // namespace assay
