// Deaths and stalls of ranks in the null transport.
#include <algorithm>
#include <chrono>
#include <thread>

#include "transport/null/fabric.hpp"

namespace assay::null {

const Faults::Death* Fabric::next_death(int rank) const {
    std::size_t number = 0;
    for (const Faults::Death& death : faults_.deaths)
        if (death.rank == rank && number++ == states_[static_cast<std::size_t>(rank)].deaths)
            return &death;
    return nullptr;
}

Nanoseconds Fabric::stalled_until(int rank) const {
    for (const Faults::Stall& stall : faults_.stalls)
        if (stall.rank == rank && stall.start <= time() && time() < stall.start + stall.duration)
            return stall.start + stall.duration;
    return 0;
}

// Discards the operations that a dead rank has posted. Messages that are on their way still arrive.
void Fabric::discard_posted(int rank) {
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
    discard_posted(rank);
    const Nanoseconds t = time();
    for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank) continue;
        const Nanoseconds later = death.notice_spread * ((peer * 5 + rank) % 8) / 8;
        notices_.emplace(t + death.notice_delay + later,
                         Notice{peer, {rank, PeerChange::State::lost}});
        if (death.return_delay > 0)
            notices_.emplace(
                t + std::max(death.return_delay, death.notice_delay + death.notice_spread + 1) +
                    later,
                Notice{peer, {rank, PeerChange::State::joined}});
    }
    wake();
    throw Killed{};
}

void Fabric::deliver(const Notice& notice) {
    RankState& peer = state(notice.peer);
    const int rank = notice.change.rank;
    const bool lost = notice.change.state == PeerChange::State::lost;
    const auto r = static_cast<std::size_t>(rank);
    if (peer.dead && !peer.ended && !lost && comes_back(notice.peer)) {
        // A rank that comes back at the same time hears of it once it is there.
        notices_.emplace(std::max(time(), peer.wake) + 1'000, notice);
        return;
    }
    if (peer.ended || peer.dead || peer.lost[r] == lost) return;
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

void Fabric::deliver_due_notices() {
    while (!notices_.empty() && notices_.begin()->first <= time()) {
        const Notice next = notices_.begin()->second;
        notices_.erase(notices_.begin());
        deliver(next);
    }
}

const Faults::Death* Fabric::last_death(int rank) const {
    std::size_t number = 0;
    for (const Faults::Death& death : faults_.deaths)
        if (death.rank == rank && ++number == states_[static_cast<std::size_t>(rank)].deaths)
            return &death;
    return nullptr;
}

bool Fabric::comes_back(int rank) const {
    const Faults::Death* last = last_death(rank);
    return last != nullptr && last->return_delay > 0;
}

bool Fabric::restart(int rank) {
    Lock lock(mutex_);
    if (!comes_back(rank)) return false;
    const Faults::Death* last = last_death(rank);
    const std::size_t deaths = state(rank).deaths;
    // It comes back after all peers have noticed its death, and before they notice its return.
    state(rank).wake = last->kill_time +
                       std::max(last->return_delay, last->notice_delay + last->notice_spread + 1);
    const auto due = [&] { return time() >= state(rank).wake || state(0).ended; };
    if (simulated()) {
        wait_until(lock, rank, due);
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
        const bool is_gone = peer != rank && (state(peer).ended || state(peer).dead);
        if (is_gone) deliver({rank, {peer, PeerChange::State::lost}});
    }
    state(rank).deaths = deaths;
    return true;
}

void Fabric::changes(int rank, std::vector<PeerChange>& changes) {
    const Lock lock(mutex_);
    deliver_due_notices();
    std::vector<PeerChange>& unreported = state(rank).changes;
    changes.insert(changes.end(), unreported.begin(), unreported.end());
    unreported.clear();
}

void Fabric::failed(int rank, std::vector<Ticket>& tickets) {
    const Lock lock(mutex_);
    deliver_due_notices();
    std::vector<Ticket>& unreported = state(rank).failed;
    tickets.insert(tickets.end(), unreported.begin(), unreported.end());
    state(rank).free.insert(state(rank).free.end(), unreported.begin(), unreported.end());
    unreported.clear();
}

}  // namespace assay::null
