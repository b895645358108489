#include "transport/direct/peer_transport.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::direct {
namespace {

// Users' tags are not negative.
constexpr int tag_up = -1, tag_down = -2, tag_length = -3, tag_text = -4, tag_farewell = -5;
constexpr std::uint64_t longest_text = 1ULL << 30;
constexpr Nanoseconds leave_limit = 10'000'000'000;

// A binomial tree with rank 0 at its top.
int parent_of(int rank) { return rank & (rank - 1); }

std::vector<int> children_of(int rank, int size) {
    std::vector<int> children;
    const int last = rank == 0 ? size : rank & -rank;
    for (int bit = 1; bit < last && rank + bit < size; bit <<= 1) children.push_back(rank + bit);
    return children;
}

}  // namespace

PeerTransport::PeerTransport(Listener listener, Membership self, MeshSettings settings)
    : name_(settings.transport),
      mesh_(std::move(listener), std::move(self), std::move(settings), *this),
      farewells_(static_cast<std::size_t>(mesh_.size()), -1) {}

void PeerTransport::connected(int peer, int socket, const Hello& hello, const session::Proof& key) {
    attach(peer, socket, hello, key);
    farewells_[static_cast<std::size_t>(peer)] = receive_own(nullptr, 0, peer, tag_farewell);
    if (hello.incarnation > 0) changes_.push_back({peer, PeerChange::State::joined});
}

bool PeerTransport::has_left(int peer) const {
    const Ticket farewell = farewells_[static_cast<std::size_t>(peer)];
    return farewell >= 0 && tickets_.outcome(farewell) == Tickets::Outcome::completed;
}

void PeerTransport::gone(int peer, const std::string& reason, bool silent) {
    const bool in_order = has_left(peer);
    detach(peer);
    Ticket& farewell = farewells_[static_cast<std::size_t>(peer)];
    if (farewell >= 0) tickets_.give_back(std::exchange(farewell, -1));
    losses_.push_back({peer, in_order ? "it has ended" : reason, silent, in_order, now()});
    if (!in_order) changes_.push_back({peer, PeerChange::State::lost});
}

void PeerTransport::end_peer(int peer, const std::string& reason) {
    mesh_.drop(peer);
    gone(peer, reason, false);
}

void PeerTransport::peer_changes(std::vector<PeerChange>& changes) {
    changes.insert(changes.end(), changes_.begin(), changes_.end());
    changes_.clear();
}

Ticket PeerTransport::send(const void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.take();
    if (peer == rank() || is_connected(peer)) post_send(ticket, data, bytes, peer, tag);
    else tickets_.settle(ticket, false);
    return ticket;
}

Ticket PeerTransport::receive(void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.take();
    if (peer == rank() || is_connected(peer)) post_receive(ticket, data, bytes, peer, tag);
    else tickets_.settle(ticket, false);
    return ticket;
}

void PeerTransport::poll(std::vector<Ticket>& completed) {
    move();
    if (!held_.empty()) release_held();
    tickets_.report_completed(completed);
}

// --- The transport's own messages --------------------------------------------------------------

void PeerTransport::send_own(const void* data, std::size_t bytes, int peer, int tag) {
    const auto* begin = static_cast<const std::byte*>(data);
    held_.push_back({tickets_.take(true), {begin, begin + bytes}});
    const Held& held = held_.back();
    if (is_connected(peer)) post_send(held.ticket, held.bytes.data(), bytes, peer, tag);
    else tickets_.settle(held.ticket, false);
}

Ticket PeerTransport::receive_own(void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.take(true);
    if (is_connected(peer)) post_receive(ticket, data, bytes, peer, tag);
    else tickets_.settle(ticket, false);
    return ticket;
}

void PeerTransport::release_held() {
    std::erase_if(held_, [this](const Held& held) {
        if (tickets_.outcome(held.ticket) == Tickets::Outcome::pending) return false;
        tickets_.give_back(held.ticket);
        return true;
    });
}

// Whether an operation of its own has completed; its ticket is then returned.
bool PeerTransport::take_outcome(Ticket own) {
    if (tickets_.outcome(own) != Tickets::Outcome::completed) return false;
    tickets_.give_back(own);
    return true;
}

// --- Collectives -------------------------------------------------------------------------------

void PeerTransport::check_complete(const char* activity) const {
    if (incarnation() > 0)
        throw Error(fmt::format("rank {} came back: it cannot take part in {}", rank(), activity),
                    "only measurements that survive a rank's death can take it back");
    if (losses_.empty()) return;
    // A host that is cut off loses all others within one limit: it is then the one to be named.
    const Loss& first = losses_.front();
    if (!first.silent || now() - first.time >= mesh_.heartbeat_limit()) fail_for(first, activity);
}

// A rank that has ended in order is missed in collectives only: its transfers were complete.
void PeerTransport::check_peers() const {
    const auto first = std::ranges::find(losses_, false, &Loss::in_order);
    if (first == losses_.end()) return;
    if (!first->silent || now() - first->time >= mesh_.heartbeat_limit())
        fail_for(*first, "a transfer");
}

void PeerTransport::fail_for(const Loss& loss, const char* activity) const {
    if (loss.silent && size() > 2 && losses_.size() + 1 == static_cast<std::size_t>(size()))
        throw Error(fmt::format("rank {} on {} hears no other rank: the host is cut off", rank(),
                                host_name()),
                    "check its network");
    throw Error(fmt::format("rank {} at {} was lost during {}: {}", loss.peer,
                            mesh_.address_of(loss.peer), activity, loss.reason),
                "check that host and its network");
}

void PeerTransport::wait_once(const char* activity) {
    move();
    check_complete(activity);
    sched_yield();
}

void PeerTransport::begin(std::span<double> values, bool sum) {
    check_complete("a reduction");
    reduction_.emplace();
    reduction_->sum = sum;
    reduction_->values = values;
    for (const int child : children_of(rank(), size())) {
        std::vector<double>& part = reduction_->parts.emplace_back(values.size());
        reduction_->up.push_back(receive_own(part.data(), values.size_bytes(), child, tag_up));
    }
}

bool PeerTransport::test_collective() {
    if (!reduction_) return true;
    move();
    if (!held_.empty()) release_held();
    Reduction& r = *reduction_;
    const auto pending = [this](Ticket ticket) {
        return tickets_.outcome(ticket) != Tickets::Outcome::completed;
    };
    if (!r.down) {
        if (std::ranges::any_of(r.up, pending)) {
            check_complete("a reduction");
            return false;
        }
        for (const Ticket ticket : r.up) tickets_.give_back(ticket);
        for (const std::vector<double>& part : r.parts)
            for (std::size_t i = 0; i < part.size(); ++i)
                r.values[i] = r.sum ? r.values[i] + part[i] : std::max(r.values[i], part[i]);
        r.up.clear();
        if (rank() != 0) {
            send_own(r.values.data(), r.values.size_bytes(), parent_of(rank()), tag_up);
            r.down =
                receive_own(r.values.data(), r.values.size_bytes(), parent_of(rank()), tag_down);
        }
    }
    if (r.down && !take_outcome(*r.down)) {
        check_complete("a reduction");
        return false;
    }
    for (const int child : children_of(rank(), size()))
        send_own(r.values.data(), r.values.size_bytes(), child, tag_down);
    reduction_.reset();
    move();
    return true;
}

void PeerTransport::receive_now(void* data, std::size_t bytes, int peer, int tag,
                                const char* activity) {
    const Ticket ticket = receive_own(data, bytes, peer, tag);
    while (!take_outcome(ticket)) wait_once(activity);
}

std::string PeerTransport::receive_text(int peer, const char* activity) {
    std::uint64_t length = 0;
    receive_now(&length, sizeof length, peer, tag_length, activity);
    if (length > longest_text)
        throw Error(fmt::format("rank {} announces a text of {} bytes", peer, length),
                    "run the same version on all hosts");
    std::string text(length, '\0');
    receive_now(text.data(), text.size(), peer, tag_text, activity);
    return text;
}

void PeerTransport::send_text(const std::string& text, int peer) {
    const std::uint64_t length = text.size();
    send_own(&length, sizeof length, peer, tag_length);
    send_own(text.data(), text.size(), peer, tag_text);
}

std::vector<std::string> PeerTransport::gather(const std::string& value) {
    check_complete("a gather");
    if (rank() != 0) {
        send_text(value, 0);
        while (release_held(), !held_.empty()) wait_once("a gather");
        return {};
    }
    std::vector<std::string> values{value};
    for (int peer = 1; peer < size(); ++peer) values.push_back(receive_text(peer, "a gather"));
    return values;
}

void PeerTransport::broadcast(std::string& value) {
    check_complete("a broadcast");
    if (rank() != 0) value = receive_text(parent_of(rank()), "a broadcast");
    for (const int child : children_of(rank(), size())) send_text(value, child);
    while (release_held(), !held_.empty()) wait_once("a broadcast");
}

// --- The end -----------------------------------------------------------------------------------

void PeerTransport::leave() {
    for (int peer = 0; peer < size(); ++peer)
        if (is_connected(peer)) send_own(nullptr, 0, peer, tag_farewell);
    const Nanoseconds deadline = now() + leave_limit;
    const auto waits = [this](int peer) {
        return is_connected(peer) && (!has_left(peer) || !is_idle(peer));
    };
    for (bool waiting = true; waiting && now() < deadline;) {
        move();
        release_held();
        waiting = !held_.empty();
        for (int peer = 0; peer < size() && !waiting; ++peer) waiting = waits(peer);
        if (waiting) usleep(100);
    }
}

std::vector<Counter> PeerTransport::counters() const {
    return {{"refused_connections", mesh_.refused()}};
}

void PeerTransport::abort(int status) { _exit(status); }

}  // namespace assay::direct
