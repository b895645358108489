// Time, polling and the end of ranks in the null transport (see fabric.hpp).
#include "transport/null/fabric.hpp"

#include <algorithm>
#include <limits>

namespace assay::null {

namespace {

// Step of simulated time when no operation is under way, so that the ranks' time limits expire.
constexpr Nanoseconds idle_step = 100'000'000;

}  // namespace

Nanoseconds Fabric::clock() {
    if (!simulated()) return now();
    const Lock lock(mutex_);
    return time_;
}

void Fabric::advance_time(Lock& lock) {
    while (simulated() && waiting_ > 0 && waiting_ == active_ && !aborted_) {
        const Nanoseconds next = next_completion();
        const bool is_idle = next == std::numeric_limits<Nanoseconds>::max();
        time_ = is_idle ? time_ + idle_step : next;
        idle_steps_ += is_idle;
        wake();
        if (!is_idle) continue;
        lock.unlock();  // ranks that all wait for what never comes can be ended
        lock.lock();
    }
}

// The time of the next completion of any rank; the greatest value if no operation is under way.
Nanoseconds Fabric::next_completion() const {
    Nanoseconds next = std::numeric_limits<Nanoseconds>::max();
    const auto include = [&](Nanoseconds due) {
        if (due > time_) next = std::min(next, due);
    };
    for (std::size_t i = 0; i < states_.size(); ++i) {
        const RankState& rank = states_[i];
        for (const Pending& pending : rank.pending) include(pending.due);
        for (const auto& [peer, due] : rank.puts_due) include(due);
        if (rank.ended) continue;
        include(rank.wake);
        include(stalled_until(static_cast<int>(i)));
        if (const Faults::Death* death = next_death(static_cast<int>(i))) include(death->kill_time);
    }
    if (!notices_.empty()) include(notices_.begin()->first);
    return next;
}

void Fabric::leave(int rank) {
    Lock lock(mutex_);
    --active_;
    state(rank).ended = true;
    // Its connections close, behind all that it has sent. The notices of a death are planted.
    if (survives() && !state(rank).dead) {
        discard_posted(rank);
        Nanoseconds last = time();
        for (const RankState& peer : states_)
            for (const Pending& pending : peer.pending) last = std::max(last, pending.due + 1);
        for (int peer = 0; peer < size(); ++peer)
            if (peer != rank) notices_.emplace(last, Notice{peer, {rank, PeerChange::State::lost}});
    }
    wake();
    advance_time(lock);
}

void Fabric::poll(int rank, std::vector<Ticket>& completed) {
    Lock lock(mutex_);
    check_aborted();
    RankState& rank_state = state(rank);
    const auto has_work = [&] {
        if (death_is_due(rank)) return true;
        if (stalled_until(rank) > 0) return false;
        return !rank_state.changes.empty() || !rank_state.failed.empty() ||
               (rank_state.wake > 0 && rank_state.wake <= time_) ||
               std::ranges::any_of(rank_state.pending,
                                   [&](const Pending& p) { return p.due <= time_; });
    };
    if (simulated()) wait_until_or_idle(lock, rank, has_work);
    if (death_is_due(rank)) kill(rank);
    rank_state.wake = 0;
    const Nanoseconds t = time();
    if (stalled_until(rank) > t) return;
    std::erase_if(rank_state.pending, [&](const Pending& pending) {
        if (pending.due > t) return false;
        completed.push_back(pending.ticket);
        rank_state.free.push_back(pending.ticket);
        return true;
    });
}

std::byte* Fabric::create_window(int rank, std::size_t bytes) {
    const Lock lock(mutex_);
    state(rank).window.resize(bytes);
    return state(rank).window.data();
}

void Fabric::end(int status) {
    const Lock lock(mutex_);
    if (!aborted_) status_ = status;
    aborted_ = true;
    wake();
}

}  // namespace assay::null
