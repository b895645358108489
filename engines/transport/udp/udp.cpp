// The UDP transport (see udp.hpp).
#include "transport/udp/udp.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "transport/direct/stream_transport.hpp"
#include "transport/udp/channel.hpp"

namespace assay {
namespace {

using direct::Hello;
using direct::Listener;
using direct::Membership;
using direct::MeshSettings;

// Larger messages are sent without a copy, and complete when they have arrived.
constexpr std::size_t max_copied_message = 8U << 10;
// The time until a full queue of the host is tried again. Queues hold some milliseconds.
constexpr Nanoseconds full_queue_delay = 1'000'000;

class Udp final : public direct::StreamTransport {
public:
    Udp(Listener listener, Membership self, MeshSettings settings)
        : StreamTransport(std::move(listener), std::move(self), std::move(settings),
                          max_copied_message),
          peers_(static_cast<std::size_t>(size())),
          epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        if (epoll_ < 0) throw Error("cannot wait for datagrams", "check 'ulimit -n'");
    }
    ~Udp() override { close(epoll_); }

    std::vector<Counter> counters() const override;

private:
    struct PeerState {
        int connection = -1;
        std::unique_ptr<udp::Channel> channel;
        udp::Setup setup{};
        std::size_t setup_received = 0;
        bool resume_pending = false;
    };
    PeerState& state(int peer) { return peers_[static_cast<std::size_t>(peer)]; }

    void attach(int peer, int connection, const Hello&, const session::Proof& key) override;
    void detach(int peer) override;
    void on_socket_events(int peer, std::uint32_t events) override;
    void on_outbox_filled(int) override {}
    void on_receive_posted(int peer) override { state(peer).resume_pending = true; }
    void progress() override;
    int descriptor() const override { return epoll_; }
    Nanoseconds allowed_idle_wait() override;
    void receive(int peer, Nanoseconds time);

    std::vector<PeerState> peers_;
    const int epoll_;
    int first_ = 0;               // the peer that is served first
    Nanoseconds full_until_ = 0;  // the host's queue had no room; no datagrams before this time
    udp::FairShare share_;
    udp::Sender::Counts sent_;  // of peers that are gone
    udp::Traffic traffic_;
};

void add_counts(const udp::Channel* channel, udp::Sender::Counts& sent, udp::Traffic& traffic) {
    if (!channel || !channel->has_begun()) return;
    const udp::Sender::Counts& counts = channel->sender().counts();
    sent.sent += counts.sent;
    sent.lost += counts.lost;
    sent.timeouts += counts.timeouts;
    sent.spurious += counts.spurious;
    traffic.forged += channel->traffic().forged;
    traffic.repeated += channel->traffic().repeated;
}

void Udp::attach(int peer, int connection, const Hello&, const session::Proof& key) {
    PeerState& p = state(peer);
    p = {};
    p.connection = connection;
    p.channel = std::make_unique<udp::Channel>(connection, rank(), peer, key);
    const udp::Setup setup = p.channel->setup();
    // A new connection accepts 8 bytes at once. If not, it is lost, and the mesh reports that.
    [[maybe_unused]] const ssize_t n = ::send(connection, &setup, sizeof setup, MSG_NOSIGNAL);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<std::uint32_t>(peer);
    epoll_ctl(epoll_, EPOLL_CTL_ADD, p.channel->socket(), &event);
}

void Udp::detach(int peer) {
    add_counts(state(peer).channel.get(), sent_, traffic_);
    state(peer) = {};
    reset(peer);
}

// Reads the peer's setup from the TCP connection, and detects the end of its process.
void Udp::on_socket_events(int peer, std::uint32_t) {
    PeerState& p = state(peer);
    while (p.connection >= 0) {
        std::array<std::byte, 64> ignored;
        const bool in_setup = p.setup_received < sizeof p.setup;
        void* target =
            in_setup ? reinterpret_cast<std::byte*>(&p.setup) + p.setup_received : ignored.data();
        const std::size_t capacity = in_setup ? sizeof p.setup - p.setup_received : ignored.size();
        const ssize_t n = recv(p.connection, target, capacity, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            if (p.channel->has_begun()) receive(peer, now());
            if (is_connected(peer))
                end_peer(peer, n == 0 ? "its process ended" : std::strerror(errno));
            return;
        }
        if (!in_setup) continue;  // nothing follows the setup
        p.setup_received += static_cast<std::size_t>(n);
        if (p.setup_received == sizeof p.setup) p.channel->begin(p.setup);
    }
}

void Udp::progress() {
    mesh().poll();
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    const Nanoseconds time = now();
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        const int peer = static_cast<int>(event.data.u32);
        if (event.events & EPOLLERR && state(peer).channel) state(peer).channel->drain_errors();
        receive(peer, time);
    }
    // Another peer comes first each time, since the first one has the most room in the host's
    // queue.
    first_ = (first_ + 1) % size();
    std::uint64_t delivered = 0;
    std::size_t peers = 0;
    for (int i = 0; i < size(); ++i) {
        const int peer = (first_ + i) % size();
        PeerState& p = state(peer);
        if (!p.channel || !p.channel->has_begun()) continue;
        if (std::exchange(p.resume_pending, false)) receive(peer, time);
        if (!p.channel) continue;
        p.channel->set_share(share_.bytes());
        delivered += p.channel->sender().arrived();
        ++peers;
        const bool is_full = time < full_until_;
        if (!p.channel->send(outbox(peer), time, is_full)) full_until_ = time + full_queue_delay;
        outbox(peer).commit(p.channel->sender().sent_until());
        outbox(peer).release(p.channel->sender().arrived(),
                             [this](Ticket ticket) { tickets().complete(ticket, true); });
    }
    share_.record(delivered, peers, time);
}

Nanoseconds Udp::allowed_idle_wait() {
    const Nanoseconds time = now();
    Nanoseconds wait = direct::max_idle_wait;
    for (int peer = 0; peer < size(); ++peer) {
        const PeerState& p = state(peer);
        if (!p.channel || !p.channel->has_begun()) continue;
        if (p.resume_pending) return 0;
        // The timers of the recovery are coarser than this.
        if (!outbox(peer).empty()) wait = std::min<Nanoseconds>(wait, 1'000'000);
        const Nanoseconds departure = p.channel->sender().departure();
        for (const Nanoseconds due :
             {p.channel->acknowledge_at(), departure == 0 ? 0 : std::max(departure, full_until_)})
            if (due != 0) wait = std::min(wait, due - time);
    }
    return wait;
}

void Udp::receive(int peer, Nanoseconds time) {
    PeerState& p = state(peer);
    if (!p.channel || !p.channel->has_begun()) return;
    std::string fault;
    const auto pass_on = [&](const std::byte* data, std::size_t bytes) {
        return fault.empty() ? consume(peer, data, bytes, fault) : 0;
    };
    if (inbox(peer).is_blocked() && resume(peer, fault)) p.channel->resume(pass_on);
    p.channel->receive(time, pass_on);
    if (!fault.empty()) end_peer(peer, fault);
}

std::vector<Counter> Udp::counters() const {
    udp::Sender::Counts sent = sent_;
    udp::Traffic traffic = traffic_;
    for (const PeerState& p : peers_) add_counts(p.channel.get(), sent, traffic);
    std::vector<Counter> counters = PeerTransport::counters();
    counters.insert(counters.end(), {{"packets_sent", sent.sent},
                                     {"packets_resent", sent.lost},
                                     {"datagrams_late", sent.spurious},
                                     {"datagrams_repeated", traffic.repeated},
                                     {"datagrams_forged", traffic.forged},
                                     {"timeouts", sent.timeouts}});
    return counters;
}

}  // namespace

std::unique_ptr<direct::PeerTransport> udp_transport(Listener listener, Membership self,
                                                     MeshSettings settings) {
    return std::make_unique<Udp>(std::move(listener), std::move(self), std::move(settings));
}

}  // namespace assay
