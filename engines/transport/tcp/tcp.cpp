// The TCP transport (see tcp.hpp).
#include "transport/tcp/tcp.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/direct/stream_transport.hpp"

namespace assay {
namespace {

using direct::Hello;
using direct::Listener;
using direct::Membership;
using direct::MeshSettings;

constexpr std::size_t read_buffer_bytes = 256U << 10;  // of a connection, for small messages
// Payloads of this size and above are read directly into the buffers of their receives.
constexpr std::size_t min_direct_read = 16U << 10;
constexpr std::size_t max_per_turn = 4U << 20;  // bytes of one peer before the next peer's turn
constexpr int max_pieces = 64;                  // of one sendmsg
// Limit of the bytes in the kernel that are not sent yet. Small messages wait behind them; with a
// lower limit the rate falls. 512 KiB take 40 us at 100 Gbit/s.
constexpr int max_unsent = 512 << 10;
// The kernel paces a connection that the network limits to less than this rate, as it does with
// BBR: bursts of several connections overflow the short queues of such networks. Faster connections
// are not paced, because a timer for each burst costs more there.
constexpr std::uint64_t max_paced = 125'000'000;    // B/s
constexpr std::uint64_t rate_interval = 256 << 10;  // bytes between two checks of the rate

class Tcp final : public direct::StreamTransport {
public:
    Tcp(Listener listener, Membership self, MeshSettings settings)
        : StreamTransport(std::move(listener), std::move(self), std::move(settings)),
          connections_(static_cast<std::size_t>(size())) {}

    std::vector<Counter> counters() const override;

private:
    struct Segments {
        std::uint64_t sent = 0, resent = 0;
    };
    struct Connection {
        int socket = -1;
        bool readable = false, writable = false, ended = false;
        std::vector<std::byte> buffer;  // read and not consumed: [begin, end)
        std::size_t begin = 0, end = 0;
        std::uint64_t sent = 0, rate_check_at = rate_interval;  // bytes sent
        bool paced = false;
    };
    Connection& connection(int peer) { return connections_[static_cast<std::size_t>(peer)]; }

    void attach(int peer, int socket, const Hello&, const session::Proof&) override {
        setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &max_unsent, sizeof max_unsent);
        connection(peer) = {};
        connection(peer).socket = socket;
        connection(peer).readable = connection(peer).writable = true;
        connection(peer).buffer.resize(read_buffer_bytes);
    }
    void detach(int peer) override {
        connection(peer) = {};
        reset(peer);
    }
    void on_socket_events(int peer, std::uint32_t events) override {
        Connection& p = connection(peer);
        if (events & EPOLLIN) p.readable = true;
        if (events & EPOLLOUT) p.writable = true;
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) p.readable = p.ended = true;
    }
    // A new frame goes out with the next progress(), together with others.
    void on_outbox_filled(int) override {}
    void on_receive_posted(int) override {}

    void progress() override {
        mesh().poll();
        for (int peer = 0; peer < size(); ++peer) {
            if (connection(peer).writable && !outbox(peer).empty()) write(peer);
            if (connection(peer).readable || connection(peer).begin < connection(peer).end)
                read(peer);
        }
    }

    Nanoseconds allowed_idle_wait() override {
        for (int peer = 0; peer < size(); ++peer) {
            const Connection& p = connection(peer);
            const bool can_read = (p.readable || p.begin < p.end) && !inbox(peer).is_blocked();
            if (can_read || (p.writable && !outbox(peer).empty())) return 0;
        }
        return direct::max_idle_wait;
    }

    static void add_segments(const Connection& p, Segments& segments);
    void write(int peer);
    void pace_if_slow(int peer);
    void read(int peer);
    ssize_t read_some(int peer);

    std::vector<Connection> connections_;
};

// The size of tcp_info up to a field, as far as a kernel knows it.
#define SIZE_UP_TO(field) (offsetof(tcp_info, field) + sizeof(tcp_info::field))

bool read_info(int socket, std::size_t needed, tcp_info& info) {
    socklen_t length = sizeof info;
    return socket >= 0 && getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           length >= needed;
}

// The kernel counts the segments that it sent in 32 bits, which hours at 100 Gbit/s exceed: these
// are the bytes over the size of a segment.
void Tcp::add_segments(const Connection& p, Segments& segments) {
    tcp_info info{};
    if (!read_info(p.socket, SIZE_UP_TO(tcpi_total_retrans), info) || info.tcpi_snd_mss == 0)
        return;
    segments.sent += p.sent / info.tcpi_snd_mss;
    segments.resent += info.tcpi_total_retrans;
}

std::vector<Counter> Tcp::counters() const {
    Segments segments;  // of the connections that are open: those to lost ranks do not count
    for (const Connection& p : connections_) add_segments(p, segments);
    std::vector<Counter> counters = PeerTransport::counters();
    counters.insert(counters.end(),
                    {{"packets_sent", segments.sent}, {"packets_resent", segments.resent}});
    return counters;
}

void Tcp::write(int peer) {
    Connection& p = connection(peer);
    direct::Outbox& out = outbox(peer);
    std::array<iovec, max_pieces> pieces;
    for (std::size_t sent = 0; sent < max_per_turn && !out.empty();) {
        int count = 0;
        const std::size_t bytes = out.gather(out.begin(), max_per_turn, pieces, count);
        msghdr message{};
        message.msg_iov = pieces.data();
        message.msg_iovlen = static_cast<std::size_t>(count);
        const ssize_t n = sendmsg(p.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) continue;
            p.writable = false;
            // A lost connection is handled by read(), after the bytes that the peer sent before.
            if (errno != EAGAIN) p.readable = p.ended = true;
            return;
        }
        sent += static_cast<std::size_t>(n);
        p.sent += static_cast<std::size_t>(n);
        if (!p.paced && p.sent >= p.rate_check_at) pace_if_slow(peer);
        out.release(out.begin() + static_cast<std::uint64_t>(n),
                    [this](Ticket ticket) { tickets().complete(ticket, true); });
        if (static_cast<std::size_t>(n) < bytes) {
            p.writable = false;  // until epoll reports EPOLLOUT
            return;
        }
    }
}

// Turns on the kernel's pacing of a connection that the network limits to less than max_paced. Any
// limit of the rate turns it on, also one that is never reached.
void Tcp::pace_if_slow(int peer) {
    Connection& p = connection(peer);
    p.rate_check_at = p.sent + rate_interval;
    tcp_info info{};
    if (!read_info(p.socket, SIZE_UP_TO(tcpi_delivery_rate), info) ||
        info.tcpi_delivery_rate_app_limited || info.tcpi_delivery_rate == 0 ||
        info.tcpi_delivery_rate >= max_paced)
        return;
    const std::uint64_t no_limit = std::uint64_t{1} << 40;
    setsockopt(p.socket, SOL_SOCKET, SO_MAX_PACING_RATE, &no_limit, sizeof no_limit);
    p.paced = true;
}

// Reads once: a large payload into its receive's buffer, the bytes after it into the connection's
// buffer. Returns the result of recvmsg.
ssize_t Tcp::read_some(int peer) {
    Connection& p = connection(peer);
    const std::span<std::byte> target = inbox(peer).target();
    const std::size_t direct = target.size() >= min_direct_read ? target.size() : 0;
    std::array<iovec, 2> pieces{{{target.data(), direct}, {p.buffer.data(), p.buffer.size()}}};
    msghdr message{};
    message.msg_iov = pieces.data() + (direct ? 0 : 1);
    message.msg_iovlen = direct ? 2 : 1;
    const ssize_t n = recvmsg(p.socket, &message, MSG_DONTWAIT);
    if (n <= 0) return n;
    const std::size_t bytes = static_cast<std::size_t>(n), filled = std::min(bytes, direct);
    if (filled > 0) on_payload_bytes(peer, filled);
    p.begin = 0;
    p.end = bytes - filled;
    if (bytes < direct + p.buffer.size() && !p.ended) p.readable = false;
    return n;
}

void Tcp::read(int peer) {
    Connection& p = connection(peer);
    std::string fault;
    for (std::size_t done = 0; done < max_per_turn;) {
        if (inbox(peer).is_blocked() && !resume(peer, fault) && fault.empty()) return;
        if (fault.empty() && p.begin < p.end)
            p.begin += consume(peer, p.buffer.data() + p.begin, p.end - p.begin, fault);
        if (!fault.empty()) {
            end_peer(peer, fault);
            return;
        }
        if (inbox(peer).is_blocked() || !p.readable) return;
        const ssize_t n = read_some(peer);
        if (n > 0) {
            done += static_cast<std::size_t>(n);
        } else if (n < 0 && errno == EAGAIN) {
            p.readable = false;
            return;
        } else if (n == 0 || errno != EINTR) {
            end_peer(peer, n == 0 ? "its process ended" : std::strerror(errno));
            return;
        }
    }
}

}  // namespace

std::unique_ptr<direct::PeerTransport> tcp_transport(Listener listener, Membership self,
                                                     MeshSettings settings) {
    return std::make_unique<Tcp>(std::move(listener), std::move(self), std::move(settings));
}

}  // namespace assay
