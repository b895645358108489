// The state that all ranks of the null transport share, under one lock: posted operations, messages
// on their way, and the time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "transport/null.hpp"

namespace assay::null {

// Whether a tag is of payloads, to which Faults::Flip applies. Others are of acknowledgements and
// small messages.
inline bool is_payload(int tag) { return tag == 1 || tag >= 64; }

// A planted death: unwinds the rank's thread.
struct Killed {};

struct Posted {
    void* data;
    std::size_t bytes;
    int rank;
    Ticket ticket;
};

class Fabric {
public:
    Fabric(int ranks, Faults faults)
        : faults_(std::move(faults)),
          states_(static_cast<std::size_t>(ranks)),
          waits_(static_cast<std::size_t>(ranks)),
          active_(ranks) {
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
    // After Killed: if the rank comes back, waits until then and returns true.
    bool restart(int rank);
    bool survives() const { return !faults_.deaths.empty(); }
    std::optional<std::string> launcher_line(int rank) const {
        return rank == 0 && faults_.launcher_line ? faults_.launcher_line() : std::nullopt;
    }
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
    struct Wait {
        std::function<bool()> ready;  // empty if the rank does not wait
        std::condition_variable goes_on;
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
    Ticket take_ticket(RankState& rank_state) {
        if (rank_state.free.empty()) return rank_state.next++;
        const Ticket ticket = rank_state.free.back();
        rank_state.free.pop_back();
        return ticket;
    }
    void check_aborted() const {
        if (aborted_) throw Aborted(status_);
    }
    bool has_fallen_silent(int rank) {
        const auto entry = faults_.silent_after.find(rank);
        return entry != faults_.silent_after.end() && state(rank).posted > entry->second;
    }
    const Faults::Death* next_death(int rank) const;
    const Faults::Death* last_death(int rank) const;
    bool comes_back(int rank) const;
    bool death_is_due(int rank) const {
        const Faults::Death* death = next_death(rank);
        return death && death->kill_time <= time();
    }
    [[noreturn]] void kill(int rank);
    void discard_posted(int rank);
    void deliver_due_notices();
    void deliver(const Notice& notice);
    void post_failed(int rank, Ticket ticket) { state(rank).failed.push_back(ticket); }
    Nanoseconds stalled_until(int rank) const;
    void duplicate(int source, int destination, int tag, const void* data, std::size_t bytes,
                   Nanoseconds due);

    // Counts an operation that a rank posts. A rank that has fallen silent blocks here until the
    // job is ended.
    void count_operation(Lock& lock, int rank) {
        if (survives()) {
            deliver_due_notices();
            if (death_is_due(rank)) kill(rank);
        }
        ++state(rank).posted;
        if (!has_fallen_silent(rank)) return;
        wait_until(lock, rank, [] { return false; });
    }
    double rate(const std::map<int, double>& sides, int rank) const {
        const auto entry = sides.find(rank);
        return entry == sides.end() ? faults_.rate : entry->second;
    }
    // Copies the data. Returns the times at which the operation completes at the source and at the
    // destination.
    std::pair<Nanoseconds, Nanoseconds> transfer(int source, int destination, const void* from,
                                                 void* to, std::size_t bytes, bool payload);
    Collective& current_collective(int rank) { return collectives_[state(rank).collectives]; }
    void leave_collective(std::uint64_t number) {
        if (++collectives_[number].ended == size()) collectives_.erase(number);
    }
    Nanoseconds time() const { return simulated() ? time_ : now(); }
    // Delivers the notices that are due, and lets the ranks go on that wait for what is now true.
    void wake() {
        deliver_due_notices();
        for (Wait& wait : waits_) {
            if (!wait.ready || !(aborted_ || wait.ready())) continue;
            wait.ready = nullptr;
            --waiting_;
            wait.goes_on.notify_one();
        }
    }
    // Waits until ready(), which every change of the state asks again, so that only ranks that go
    // on are woken. Simulated time advances when the last rank begins to wait.
    template <class Ready>
    void wait_until(Lock& lock, int rank, Ready ready) {
        if (!aborted_ && !ready()) {
            Wait& wait = waits_[static_cast<std::size_t>(rank)];
            wait.ready = std::ref(ready);
            ++waiting_;
            advance_time(lock);
            wait.goes_on.wait(lock, [&] { return !wait.ready; });
        }
        check_aborted();
    }
    // The same, but also returns when no operation is under way: the caller then checks its time
    // limit.
    template <class Ready>
    void wait_until_or_idle(Lock& lock, int rank, Ready ready) {
        wait_until(lock, rank, [&, seen = idle_steps_] { return idle_steps_ != seen || ready(); });
    }
    // While all ranks wait: advances simulated time to the next completion of any of them.
    void advance_time(Lock& lock);
    Nanoseconds next_completion() const;

    const Faults faults_;
    std::mutex mutex_;
    std::vector<RankState> states_;
    std::vector<Wait> waits_;                 // by rank
    using Match = std::tuple<int, int, int>;  // source, destination, tag
    std::map<Match, std::deque<Posted>> sends_, receives_;
    std::map<std::pair<int, int>, std::uint64_t> payloads_;
    std::multimap<Nanoseconds, Notice> notices_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> copies_;  // of planted duplicates
    std::map<std::uint64_t, Collective> collectives_;
    bool aborted_ = false;
    int status_ = 0;
    int active_, waiting_ = 0;  // ranks that have not ended, and those of them that wait
    std::uint64_t idle_steps_ = 0;
    Nanoseconds time_ = 0;  // simulated
};

}  // namespace assay::null
