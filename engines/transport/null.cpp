#include "transport/null.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
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

// Tags of payloads, see Faults::Flip. Others are of acknowledgements and small messages.
bool is_payload(int tag) { return tag == 1 || tag >= 64; }

// A planted death: unwinds the rank's thread.
struct Killed {};

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
        : faults_(std::move(faults)), states_(static_cast<std::size_t>(ranks)), active_(ranks) {
        for (RankState& rank : states_) rank.lost.resize(states_.size());
    }

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
    void leave(int rank);  // a rank has ended
    // After Killed: whether the rank comes back, and then waits until it does.
    bool come_back(int rank);
    bool survives() const { return !faults_.deaths.empty(); }
    void changes(int rank, std::vector<PeerChange>& changes);
    void failed(int rank, std::vector<Ticket>& tickets);
    void wake_at(int rank, Nanoseconds time) {
        const Lock lock(mutex_);
        state(rank).wake = time;
    }
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
        Nanoseconds wake = 0;
        std::vector<PeerChange> changes;
        std::vector<Ticket> failed;
        std::vector<bool> lost;  // peers, as this rank sees them
        std::size_t deaths = 0;  // that have happened
        bool ended = false, dead = false;
    };
    // A peer learns that a rank is lost, or has come back.
    struct Notice {
        int peer;
        PeerChange change;
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
    const Faults::Death* next_death(int rank) const;
    bool doomed(int rank) const {
        const Faults::Death* death = next_death(rank);
        return death && death->at <= time();
    }
    [[noreturn]] void kill(int rank);
    void forget(int rank);
    void give_notices();
    void notice(const Notice& notice);
    void post_failed(int rank, Ticket ticket) { state(rank).failed.push_back(ticket); }
    Nanoseconds stalled_until(int rank) const;
    void duplicate(int source, int destination, int tag, const void* data, std::size_t bytes,
                   Nanoseconds due);

    // A silent rank blocks inside its call until the job is ended.
    void count_operation(Lock& lock, int rank) {
        if (survives()) {
            give_notices();
            if (doomed(rank)) kill(rank);
        }
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
    std::multimap<Nanoseconds, Notice> notices_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> copies_;  // of planted duplicates
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
    for (std::size_t i = 0; i < states_.size(); ++i) {
        const RankState& rank = states_[i];
        for (const Pending& pending : rank.pending) consider(pending.due);
        for (const auto& [peer, due] : rank.puts_due) consider(due);
        if (rank.ended) continue;
        consider(rank.wake);
        consider(stalled_until(static_cast<int>(i)));
        if (const Faults::Death* death = next_death(static_cast<int>(i))) consider(death->at);
    }
    if (!notices_.empty()) consider(notices_.begin()->first);
    if (next == std::numeric_limits<Nanoseconds>::max()) {
        next = time_ + idle_step;
        ++idle_steps_;
    }
    time_ = next;
    wake();
}

void Fabric::leave(int rank) {
    const Lock lock(mutex_);
    --active_;
    state(rank).ended = true;
    if (survives()) {  // its connections close, behind all that it has sent
        forget(rank);
        Nanoseconds last = time();
        for (const RankState& peer : states_)
            for (const Pending& pending : peer.pending) last = std::max(last, pending.due + 1);
        for (int peer = 0; peer < size(); ++peer)
            if (peer != rank) notices_.emplace(last, Notice{peer, {rank, PeerChange::State::lost}});
    }
    wake();
}

const Faults::Death* Fabric::next_death(int rank) const {
    std::size_t number = 0;
    for (const Faults::Death& death : faults_.deaths)
        if (death.rank == rank && number++ == states_[static_cast<std::size_t>(rank)].deaths)
            return &death;
    return nullptr;
}

Nanoseconds Fabric::stalled_until(int rank) const {
    for (const Faults::Stall& stall : faults_.stalls)
        if (stall.rank == rank && stall.at <= time() && time() < stall.at + stall.time)
            return stall.at + stall.time;
    return 0;
}

// What a dead rank has posted is gone with its memory. What is on its way still arrives.
void Fabric::forget(int rank) {
    for (auto& [match, sends] : sends_)
        if (std::get<0>(match) == rank) sends.clear();
    for (auto& [match, receives] : receives_)
        if (std::get<1>(match) == rank) receives.clear();
    state(rank).pending.clear();
}

void Fabric::kill(int rank) {
    const Faults::Death& death = *next_death(rank);
    ++state(rank).deaths;
    state(rank).dead = true;
    forget(rank);
    const Nanoseconds t = time();
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank) continue;
        const Nanoseconds later = death.spread * ((peer * 5 + rank) % 8) / 8;
        notices_.emplace(t + death.noticed + later, Notice{peer, {rank, PeerChange::State::lost}});
        if (death.back > 0)
            notices_.emplace(t + std::max(death.back, death.noticed + death.spread + 1) + later,
                             Notice{peer, {rank, PeerChange::State::joined}});
    }
    wake();
    throw Killed{};
}

void Fabric::notice(const Notice& notice) {
    RankState& peer = state(notice.peer);
    const int rank = notice.change.rank;
    const bool lost = notice.change.state == PeerChange::State::lost;
    const auto r = static_cast<std::size_t>(rank);
    if (peer.ended || peer.lost[r] == lost) return;
    peer.lost[r] = lost;
    peer.changes.push_back(notice.change);
    if (!lost) return;
    for (auto& [match, sends] : sends_)
        if (std::get<0>(match) == notice.peer && std::get<1>(match) == rank)
            for (; !sends.empty(); sends.pop_front())
                post_failed(notice.peer, sends.front().ticket);
    for (auto& [match, receives] : receives_)
        if (std::get<0>(match) == rank && std::get<1>(match) == notice.peer)
            for (; !receives.empty(); receives.pop_front())
                post_failed(notice.peer, receives.front().ticket);
}

void Fabric::give_notices() {
    bool any = false;
    while (!notices_.empty() && notices_.begin()->first <= time()) {
        const Notice next = notices_.begin()->second;
        notices_.erase(notices_.begin());
        notice(next);
        any = true;
    }
    if (any) wake();
}

bool Fabric::come_back(int rank) {
    Lock lock(mutex_);
    const Faults::Death* last = nullptr;
    std::size_t number = 0;
    for (const Faults::Death& death : faults_.deaths)
        if (death.rank == rank && ++number == state(rank).deaths) last = &death;
    if (!last || last->back == 0) return false;
    const std::size_t deaths = state(rank).deaths;
    // Its peers have seen the last of it, and will see that it is back.
    state(rank).wake = last->at + std::max(last->back, last->noticed + last->spread + 1);
    const auto due = [&] { return time() >= state(rank).wake || state(0).ended; };
    if (simulated()) {
        wait_until(lock, due);
    } else {
        while (!aborted_ && !due()) {
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            lock.lock();
        }
        check_aborted();
    }
    if (state(0).ended) return false;
    state(rank) = {};
    state(rank).lost.resize(states_.size());
    for (int peer = 0; peer < size(); ++peer) {
        const bool gone = peer != rank && (state(peer).ended || state(peer).dead);
        if (gone) notice({rank, {peer, PeerChange::State::lost}});
    }
    state(rank).deaths = deaths;
    return true;
}

void Fabric::changes(int rank, std::vector<PeerChange>& changes) {
    const Lock lock(mutex_);
    give_notices();
    std::vector<PeerChange>& own = state(rank).changes;
    changes.insert(changes.end(), own.begin(), own.end());
    own.clear();
}

void Fabric::failed(int rank, std::vector<Ticket>& tickets) {
    const Lock lock(mutex_);
    give_notices();
    std::vector<Ticket>& own = state(rank).failed;
    tickets.insert(tickets.end(), own.begin(), own.end());
    state(rank).free.insert(state(rank).free.end(), own.begin(), own.end());
    own.clear();
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
    if (state(rank).lost[static_cast<std::size_t>(peer)]) {
        post_failed(rank, ticket);
        return ticket;
    }
    auto& waiting = receives_[{rank, peer, tag}];
    if (waiting.empty()) {
        sends_[{rank, peer, tag}].push_back({const_cast<void*>(data), bytes, rank, ticket});
        return ticket;
    }
    const Posted receive = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] = transfer(rank, peer, data, receive.data, bytes, is_payload(tag));
    state(rank).pending.push_back({ticket, sent});
    state(peer).pending.push_back({receive.ticket, arrived});
    if (is_payload(tag)) duplicate(rank, peer, tag, data, bytes, arrived);
    return ticket;
}

Ticket Fabric::post_receive(int rank, void* data, std::size_t bytes, int peer, int tag) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    if (state(rank).lost[static_cast<std::size_t>(peer)]) {
        post_failed(rank, ticket);
        return ticket;
    }
    auto& waiting = sends_[{peer, rank, tag}];
    if (waiting.empty()) {
        receives_[{peer, rank, tag}].push_back({data, bytes, rank, ticket});
        return ticket;
    }
    const Posted send = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] =
        transfer(peer, rank, send.data, data, std::min(bytes, send.bytes), is_payload(tag));
    if (send.rank >= 0) state(peer).pending.push_back({send.ticket, sent});
    state(rank).pending.push_back({ticket, arrived});
    if (send.rank >= 0 && is_payload(tag))
        duplicate(peer, rank, tag, send.data, send.bytes, arrived);
    return ticket;
}

// The message that has just been carried arrives a second time, if that is planted.
void Fabric::duplicate(int source, int destination, int tag, const void* data, std::size_t bytes,
                       Nanoseconds due) {
    const std::uint64_t number = payloads_[{source, destination}] - 1;
    for (const Faults::Duplicate& planted : faults_.duplicates) {
        if (planted.source != source || planted.destination != destination ||
            planted.message != number)
            continue;
        auto& waiting = receives_[{source, destination, tag}];
        if (!waiting.empty()) {
            const Posted receive = waiting.front();
            waiting.pop_front();
            std::memcpy(receive.data, data, std::min(bytes, receive.bytes));
            state(destination).pending.push_back({receive.ticket, due});
            continue;
        }
        const auto* begin = static_cast<const std::byte*>(data);
        copies_.push_back(std::make_unique<std::vector<std::byte>>(begin, begin + bytes));
        sends_[{source, destination, tag}].push_back({copies_.back()->data(), bytes, -1, 0});
    }
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
    const auto has_work = [&] {
        if (survives()) give_notices();
        if (doomed(rank)) return true;
        if (stalled_until(rank) > 0) return false;
        return !m.changes.empty() || !m.failed.empty() || (m.wake > 0 && m.wake <= time_) ||
               std::ranges::any_of(m.pending, [&](const Pending& p) { return p.due <= time_; });
    };
    if (simulated()) wait_until_or_idle(lock, has_work);
    if (doomed(rank)) kill(rank);
    m.wake = 0;
    const Nanoseconds t = time();
    if (stalled_until(rank) > t) return;
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
    void wake_at(Nanoseconds time) override { fabric_.wake_at(rank_, time); }
    bool survives() const override { return fabric_.survives(); }
    void peer_changes(std::vector<PeerChange>& changes) override {
        fabric_.changes(rank_, changes);
    }
    void poll_failed(std::vector<Ticket>& failed) override { fabric_.failed(rank_, failed); }
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

// Runs the body once. True if the rank was killed and has come back.
bool run_rank(Fabric& fabric, int rank, const std::function<void(Transport&)>& body) {
    NullRank transport(fabric, rank);
    try {
        body(transport);
        return false;
    } catch (const Killed&) {
    }
    return fabric.come_back(rank);
}

}  // namespace

void run_null_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body) {
    Fabric fabric(ranks, faults);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    {
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(ranks));
        for (int rank = 0; rank < ranks; ++rank)
            threads.emplace_back([&, rank] {
                try {
                    for (bool lives = true; lives;) lives = run_rank(fabric, rank, body);
                } catch (...) {
                    errors[static_cast<std::size_t>(rank)] = std::current_exception();
                    fabric.end(2);  // the other ranks would wait for this one
                }
                fabric.leave(rank);
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
