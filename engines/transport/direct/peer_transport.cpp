// Peers, collectives and the end of a job, for transports without MPI (see peer_transport.hpp).
#include "transport/direct/peer_transport.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::direct {
namespace {

// Tags of the transport's own messages; those of users are not negative.
constexpr int tag_up = -1, tag_down = -2, tag_length = -3, tag_text = -4, tag_leave = -5,
              tag_start = -6;
constexpr std::uint64_t max_text_bytes = 1ULL << 30;
constexpr Nanoseconds leave_limit = 10'000'000'000, start_wait = 10'000'000;

// The collectives use a binomial tree with rank 0 as root.
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
      leave_receives_(static_cast<std::size_t>(mesh_.size()), -1) {}

void PeerTransport::connect() {
    mesh_.connect_all();
    if (incarnation() == 0) start_together();
    mesh_.judge_silence();
}

// A rank may be stopped while others are connected already. They begin when rank 0 has heard that
// every rank is. A rank that dies meanwhile is waited for: its new process is there when it is
// connected, and takes part in no start.
void PeerTransport::start_together() {
    std::vector<std::pair<int, Ticket>> awaited;
    const auto missing = [&] {
        std::erase_if(awaited, [this](const auto& entry) {
            return release_if_completed(entry.second) || mesh_.incarnation_of(entry.first) > 0;
        });
        std::vector<int> ranks;
        ranks.reserve(awaited.size());
        for (const auto& [peer, ticket] : awaited) ranks.push_back(peer);
        return ranks;
    };
    const auto wait = [this] {
        progress();
        const auto leader = std::ranges::find(losses_, 0, &Loss::peer);
        if (leader != losses_.end()) throw_lost(*leader, "the start");
        idle_wait(0, start_wait);
    };
    if (rank() != 0) send_internal(nullptr, 0, 0, tag_start);
    for (int peer = 0; peer < (rank() == 0 ? size() : 1); ++peer)
        if (peer != rank())
            awaited.emplace_back(peer, receive_internal(nullptr, 0, peer, tag_start));
    mesh_.await_ranks(missing, wait);
    for (int peer = 1; rank() == 0 && peer < size(); ++peer)
        send_internal(nullptr, 0, peer, tag_start);
    progress();
}

void PeerTransport::on_connected(int peer, int socket, const Hello& hello,
                                 const session::Proof& key) {
    attach(peer, socket, hello, key);
    leave_receives_[static_cast<std::size_t>(peer)] = receive_internal(nullptr, 0, peer, tag_leave);
    if (hello.incarnation > 0) changes_.push_back({peer, PeerChange::State::joined});
}

bool PeerTransport::has_left(int peer) const {
    const Ticket leave_receive = leave_receives_[static_cast<std::size_t>(peer)];
    return leave_receive >= 0 && tickets_.outcome(leave_receive) == Tickets::Outcome::completed;
}

void PeerTransport::on_lost(int peer, const std::string& reason, bool silent) {
    const bool graceful = has_left(peer);
    detach(peer);
    Ticket& leave_receive = leave_receives_[static_cast<std::size_t>(peer)];
    if (leave_receive >= 0) tickets_.release(std::exchange(leave_receive, -1));
    losses_.push_back({peer, graceful ? "it has ended" : reason, silent, graceful, now()});
    if (!graceful) changes_.push_back({peer, PeerChange::State::lost});
}

void PeerTransport::end_peer(int peer, const std::string& reason) {
    mesh_.drop(peer);
    on_lost(peer, reason, false);
}

void PeerTransport::peer_changes(std::vector<PeerChange>& changes) {
    changes.insert(changes.end(), changes_.begin(), changes_.end());
    changes_.clear();
}

Ticket PeerTransport::send(const void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.allocate();
    if (peer == rank() || is_connected(peer)) post_send(ticket, data, bytes, peer, tag);
    else tickets_.complete(ticket, false);
    return ticket;
}

Ticket PeerTransport::receive(void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.allocate();
    if (peer == rank() || is_connected(peer)) post_receive(ticket, data, bytes, peer, tag);
    else tickets_.complete(ticket, false);
    return ticket;
}

void PeerTransport::poll(std::vector<Ticket>& completed) {
    progress();
    if (!internal_sends_.empty()) release_completed_sends();
    tickets_.report_completed(completed);
}

void PeerTransport::idle_wait(Nanoseconds /*idle*/, Nanoseconds limit) {
    limit = std::min(limit, allowed_idle_wait());
    if (limit <= 0) return;
    std::array<pollfd, 2> watched{{{mesh_.descriptor(), POLLIN, 0}, {descriptor(), POLLIN, 0}}};
    const timespec wait{limit / 1'000'000'000, limit % 1'000'000'000};
    ppoll(watched.data(), watched.size(), &wait, nullptr);
}

// --- The transport's own messages --------------------------------------------------------------

void PeerTransport::send_internal(const void* data, std::size_t bytes, int peer, int tag) {
    const auto* begin = static_cast<const std::byte*>(data);
    internal_sends_.push_back({tickets_.allocate(true), {begin, begin + bytes}});
    const InternalSend& sent = internal_sends_.back();
    if (is_connected(peer)) post_send(sent.ticket, sent.bytes.data(), bytes, peer, tag);
    else tickets_.complete(sent.ticket, false);
}

Ticket PeerTransport::receive_internal(void* data, std::size_t bytes, int peer, int tag) {
    const Ticket ticket = tickets_.allocate(true);
    if (is_connected(peer)) post_receive(ticket, data, bytes, peer, tag);
    else tickets_.complete(ticket, false);
    return ticket;
}

void PeerTransport::release_completed_sends() {
    std::erase_if(internal_sends_, [this](const InternalSend& sent) {
        if (tickets_.outcome(sent.ticket) == Tickets::Outcome::pending) return false;
        tickets_.release(sent.ticket);
        return true;
    });
}

// Whether an internal operation has completed; its ticket is then released.
bool PeerTransport::release_if_completed(Ticket internal) {
    if (tickets_.outcome(internal) != Tickets::Outcome::completed) return false;
    tickets_.release(internal);
    return true;
}

// --- Collectives -------------------------------------------------------------------------------

void PeerTransport::check_all_present(const char* activity) const {
    if (incarnation() > 0)
        throw Error(fmt::format("rank {} came back: it cannot take part in {}", rank(), activity),
                    "only measurements that survive a rank's death can take it back");
    if (losses_.empty()) return;
    // A host that is cut off loses all others within one limit. The error waits for that time, so
    // that it can name this host instead of the first peer.
    const Loss& first = losses_.front();
    if (!first.silent || now() - first.time >= mesh_.heartbeat_limit()) throw_lost(first, activity);
}

// A rank that has left is not an error here: its transfers were complete.
void PeerTransport::check_peers() const {
    const auto first = std::ranges::find(losses_, false, &Loss::graceful);
    if (first == losses_.end()) return;
    if (!first->silent || now() - first->time >= mesh_.heartbeat_limit())
        throw_lost(*first, "a transfer");
}

void PeerTransport::throw_lost(const Loss& loss, const char* activity) const {
    if (loss.silent && size() > 2 && losses_.size() + 1 == static_cast<std::size_t>(size()))
        throw Error(fmt::format("rank {} on {} hears no other rank: the host is cut off", rank(),
                                host_name()),
                    "check its network");
    throw Error(fmt::format("rank {} at {} was lost during {}: {}", loss.peer,
                            mesh_.address_of(loss.peer), activity, loss.reason),
                "check that host and its network");
}

void PeerTransport::progress_and_check(const char* activity) {
    progress();
    check_all_present(activity);
    sched_yield();
}

void PeerTransport::begin(std::span<double> values, bool sum) {
    check_all_present("a reduction");
    reduction_.emplace();
    reduction_->sum = sum;
    reduction_->values = values;
    for (const int child : children_of(rank(), size())) {
        std::vector<double>& part = reduction_->parts.emplace_back(values.size());
        reduction_->up.push_back(receive_internal(part.data(), values.size_bytes(), child, tag_up));
    }
}

bool PeerTransport::test_collective() {
    if (!reduction_) return true;
    progress();
    if (!internal_sends_.empty()) release_completed_sends();
    Reduction& r = *reduction_;
    const auto pending = [this](Ticket ticket) {
        return tickets_.outcome(ticket) != Tickets::Outcome::completed;
    };
    if (!r.down) {
        if (std::ranges::any_of(r.up, pending)) {
            check_all_present("a reduction");
            return false;
        }
        for (const Ticket ticket : r.up) tickets_.release(ticket);
        for (const std::vector<double>& part : r.parts)
            for (std::size_t i = 0; i < part.size(); ++i)
                r.values[i] = r.sum ? r.values[i] + part[i] : std::max(r.values[i], part[i]);
        r.up.clear();
        if (rank() != 0) {
            send_internal(r.values.data(), r.values.size_bytes(), parent_of(rank()), tag_up);
            r.down = receive_internal(r.values.data(), r.values.size_bytes(), parent_of(rank()),
                                      tag_down);
        }
    }
    if (r.down && !release_if_completed(*r.down)) {
        check_all_present("a reduction");
        return false;
    }
    for (const int child : children_of(rank(), size()))
        send_internal(r.values.data(), r.values.size_bytes(), child, tag_down);
    reduction_.reset();
    progress();
    return true;
}

void PeerTransport::receive_blocking(void* data, std::size_t bytes, int peer, int tag,
                                     const char* activity) {
    const Ticket ticket = receive_internal(data, bytes, peer, tag);
    while (!release_if_completed(ticket)) progress_and_check(activity);
}

std::string PeerTransport::receive_text(int peer, const char* activity) {
    std::uint64_t length = 0;
    receive_blocking(&length, sizeof length, peer, tag_length, activity);
    if (length > max_text_bytes)
        throw Error(fmt::format("rank {} announces a text of {} bytes", peer, length),
                    "run the same version on all hosts");
    std::string text(length, '\0');
    receive_blocking(text.data(), text.size(), peer, tag_text, activity);
    return text;
}

void PeerTransport::send_text(const std::string& text, int peer) {
    const std::uint64_t length = text.size();
    send_internal(&length, sizeof length, peer, tag_length);
    send_internal(text.data(), text.size(), peer, tag_text);
}

std::vector<std::string> PeerTransport::gather(const std::string& value) {
    check_all_present("a gather");
    if (rank() != 0) {
        send_text(value, 0);
        while (release_completed_sends(), !internal_sends_.empty()) progress_and_check("a gather");
        return {};
    }
    std::vector<std::string> values{value};
    for (int peer = 1; peer < size(); ++peer) values.push_back(receive_text(peer, "a gather"));
    return values;
}

void PeerTransport::broadcast(std::string& value) {
    check_all_present("a broadcast");
    if (rank() != 0) value = receive_text(parent_of(rank()), "a broadcast");
    for (const int child : children_of(rank(), size())) send_text(value, child);
    while (release_completed_sends(), !internal_sends_.empty()) progress_and_check("a broadcast");
}

// --- The end -----------------------------------------------------------------------------------

void PeerTransport::leave() {
    for (int peer = 0; peer < size(); ++peer)
        if (is_connected(peer)) send_internal(nullptr, 0, peer, tag_leave);
    const Nanoseconds deadline = now() + leave_limit;
    const auto waits = [this](int peer) {
        return is_connected(peer) && (!has_left(peer) || !is_idle(peer));
    };
    for (bool waiting = true; waiting && now() < deadline;) {
        progress();
        release_completed_sends();
        waiting = !internal_sends_.empty();
        for (int peer = 0; peer < size() && !waiting; ++peer) waiting = waits(peer);
        if (waiting) usleep(100);
    }
}

std::vector<Counter> PeerTransport::counters() const {
    return {{"refused_connections", mesh_.refused()}};
}

void PeerTransport::abort(int status) { _exit(status); }

}  // namespace assay::direct
