#include "node/udp/transmit.hpp"

#include <fmt/format.h>
#include <netinet/udp.h>
#include <sys/prctl.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>

#ifndef UDP_SEGMENT  // glibc names it since 2.33
#define UDP_SEGMENT 103
#endif

namespace assay::node {
namespace {

constexpr std::uint64_t most_segments = 64;    // UDP_MAX_SEGMENTS of every kernel that has it
constexpr std::uint64_t most_bytes = 65000;    // of one block: an IP packet less its headers
constexpr std::size_t most_calls = 256;        // messages of a batch, each by itself
constexpr Nanoseconds lead_ns = 5'000'000;     // for all threads to be there at the start
constexpr Nanoseconds grace_ns = 250'000'000;  // to catch up after the end, when held up at last
constexpr Nanoseconds spin_ns = 5'000;         // not worth going to sleep
constexpr std::uint64_t send_buffer = 4 << 20;

void sleep_until(Nanoseconds when) {
    if (when - now() > spin_ns) {
        const timespec t{when / 1'000'000'000, when % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
    }
    while (now() < when) {
    }
}

bool says_no_gso(int error) {
    return error == EIO || error == EINVAL || error == EMSGSIZE || error == EOPNOTSUPP;
}

}  // namespace

struct Transmitter::Stream {
    std::uint32_t number;
    UdpSocket socket;
    Pace pace;
    bool gso;
};

// All messages differ in their headers alone: each is sent from its own header and the one payload,
// which so stays in the first-level cache.
struct Transmitter::Worker {
    std::vector<Stream*> streams{};
    std::vector<std::byte> payload{};
    std::vector<std::array<std::byte, DataHeader::bytes>>
        heads{};  // of a batch, as all that follow
    std::vector<std::array<iovec, 2>> parts{};
    std::array<mmsghdr, most_calls> headers{};
    std::uint64_t first_batch = 0, dropped = 0;
    Nanoseconds first = 0, last = 0, pause = 0;
    std::atomic<std::uint64_t> messages = 0;
    std::jthread thread{};
};

Transmitter::Transmitter(const Hello& hello, const Route& route)
    : hello_(hello),
      route_(route),
      batch_(batch_of(hello.rate / static_cast<double>(hello.size), hello.size)),
      began_(now() + lead_ns),
      limit_(began_ + static_cast<Nanoseconds>(hello.seconds * 1e9) + grace_ns) {
    const double rate = hello.rate / static_cast<double>(hello.size);
    const Address port = route.receiver;
    const int base = ntohs(reinterpret_cast<const sockaddr_in&>(port.storage)
                               .sin_port);  // in the same place in IPv6's
    for (std::uint32_t s = 0; s < hello.streams; ++s) {
        UdpSocket socket(port);
        const Address to = port.with_port(base + 1 + static_cast<int>(s % route.sockets));
        // Whole messages or none, unless they may be cut up.
        const int discover = route.fragments ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO;
        port.is_six() ? socket.set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, discover)
                      : socket.set(IPPROTO_IP, IP_MTU_DISCOVER, discover);
        // So that what this host's own queue drops is told (ENOBUFS).
        port.is_six() ? socket.set(IPPROTO_IPV6, IPV6_RECVERR, 1)
                      : socket.set(IPPROTO_IP, IP_RECVERR, 1);
        socket.enlarge(false, send_buffer);
        const timeval limit{0, 100'000};
        setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(socket.fd(), to.get(), to.length) != 0)
            throw Error(
                fmt::format("cannot send to {}: {}", to.with_port_text(), std::strerror(errno)),
                "is there a route? see 'ip route'");
        const bool gso = route.gso && batch_ > 1 &&
                         !socket.set(IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(hello.size));
        const double phase = static_cast<double>(s) / hello.streams;
        streams_.push_back(std::make_unique<Stream>(s, std::move(socket),
                                                    Pace(rate, hello.planned, batch_, phase), gso));
    }
    const auto payload = payload_of(hello.run, hello.size);
    for (int t = 0; t < std::min(route.threads, static_cast<int>(hello.streams)); ++t) {
        Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
        for (auto s = static_cast<std::size_t>(t); s < streams_.size();
             s += static_cast<std::size_t>(route.threads))
            worker.streams.push_back(streams_[s].get());
        worker.payload = payload;
        worker.heads.resize(batch_);
        for (auto& head : worker.heads)
            worker.parts.push_back(
                {iovec{head.data(), head.size()},
                 iovec{worker.payload.data() + head.size(), payload.size() - head.size()}});
    }
    running_ = static_cast<int>(workers_.size());
    for (auto& worker : workers_)
        worker->thread = std::jthread([this, w = worker.get()] {
            work(*w);
            --running_;
        });
}

Transmitter::~Transmitter() { stop(); }

bool Transmitter::is_over() const {
    return stopping_.load(std::memory_order_relaxed) || now() > limit_;
}

void Transmitter::fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    stopping_ = true;
}

Transmitter::Stream* Transmitter::next(Worker& worker) const {
    Stream* first = nullptr;
    for (Stream* one : worker.streams)
        if (!one->pace.done() && (first == nullptr || one->pace.due() < first->pace.due()))
            first = one;
    return first;
}

void Transmitter::work(Worker& worker) {
    prctl(PR_SET_TIMERSLACK, 1);  // 50 us by default, as much as a batch takes
    while (Stream* stream = next(worker)) {
        // In short naps, so that a slow stream hears of the end.
        const Nanoseconds due = began_ + stream->pace.due();
        while (now() < due && !is_over()) sleep_until(std::min(due, now() + grace_ns / 5));
        if (is_over()) return;
        const Nanoseconds scheduled = began_ + stream->pace.scheduled(), at = now();
        const std::uint64_t messages = hand_over(worker, *stream, stream->pace.batch());
        stream->pace.advance(at - began_, messages);
        if (worker.first == 0) worker.first = at, worker.first_batch = messages;
        worker.last = at;
        worker.pause = std::max(worker.pause, at - scheduled);
        worker.messages.fetch_add(messages, std::memory_order_relaxed);
    }
}

// Sends the stream's next `messages`; gives how many left (all, unless it is over).
std::uint64_t Transmitter::hand_over(Worker& worker, Stream& stream, std::uint64_t messages) {
    const auto at = static_cast<std::uint64_t>(now());
    for (std::uint64_t m = 0; m < messages; ++m)
        DataHeader{stream.number, hello_.run, stream.pace.sent() + m, at}.put(
            worker.heads[m].data());
    std::uint64_t done = 0;
    while (done < messages) {
        const std::uint64_t before = done;
        done = push(worker, stream, done, messages);
        if (done == before && is_over()) break;
    }
    return done;
}

// One system call for what is left of a batch; `done` after it.
std::uint64_t Transmitter::push(Worker& worker, Stream& stream, std::uint64_t done,
                                std::uint64_t messages) {
    const std::uint64_t block =
        stream.gso ? std::min(most_segments, std::max<std::uint64_t>(1, most_bytes / hello_.size))
                   : 1;
    unsigned calls = 0;
    for (std::uint64_t m = done; m < messages; m += block, ++calls) {
        const std::uint64_t count = std::min(block, messages - m);
        worker.headers[calls] = {};
        worker.headers[calls].msg_hdr.msg_iov = worker.parts[m].data();
        worker.headers[calls].msg_hdr.msg_iovlen = 2 * count;
    }
    const int n = sendmmsg(stream.socket.fd(), worker.headers.data(), calls, 0);
    if (n > 0) return std::min(messages, done + static_cast<std::uint64_t>(n) * block);
    return done + recover(worker, stream, errno, std::min(block, messages - done));
}

// After an error with the next `block` messages: how many of them need not be sent again. What was
// dropped counts as sent, since its numbers are used.
std::uint64_t Transmitter::recover(Worker& worker, Stream& stream, int error, std::uint64_t block) {
    if (error == EAGAIN || error == EINTR) return 0;
    if (error == ENOBUFS) {
        worker.dropped += block;
        return block;
    }
    if (stream.gso && says_no_gso(error)) {
        stream.gso = false;
        stream.socket.set(IPPROTO_UDP, UDP_SEGMENT, 0);
        return 0;
    }
    const std::string to = route_.receiver.with_port_text();
    if (error == ECONNREFUSED)
        fail(Error(fmt::format("{} has stopped receiving", to), "see the receiver's last words"));
    else if (error == EMSGSIZE)
        fail(
            Error(fmt::format("messages of {} bytes do not pass on the way to {}", hello_.size, to),
                  "raise the MTU there (ip link set DEV mtu 9000), choose a smaller --size on both "
                  "sides, or --fragments"));
    else
        fail(Error(fmt::format("cannot send to {}: {}", to, std::strerror(error)),
                   error == EPERM ? "does this machine's firewall forbid it?"
                                  : "see 'ip route' and 'ip link'"));
    return 0;
}

std::uint64_t Transmitter::messages() const {
    std::uint64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->messages.load(std::memory_order_relaxed);
    return sum;
}

void Transmitter::stop() {
    stopping_ = true;
    for (auto& worker : workers_)
        if (worker->thread.joinable()) worker->thread.join();
}

Sent Transmitter::sent() {
    Sent all;
    all.error = error_;
    Nanoseconds first = 0, last = 0;
    std::uint64_t first_batch = 0;
    for (const auto& stream : streams_) {
        all.streams.push_back(stream->pace.sent());
        all.messages += stream->pace.sent();
        all.gso |= stream->gso;
    }
    for (const auto& worker : workers_) {
        all.dropped += worker->dropped;
        all.pause = std::max(all.pause, seconds(worker->pause));
        last = std::max(last, worker->last);
        if (worker->first == 0 || (first != 0 && worker->first >= first)) continue;
        first = worker->first;
        first_batch = worker->first_batch;
    }
    // From the first batch to the last, so less the first: else a short run would look too fast.
    const double elapsed = seconds(last - first);
    const std::uint64_t timed = elapsed > 0 ? all.messages - first_batch : all.messages;
    all.rate = static_cast<double>(timed * hello_.size) / (elapsed > 0 ? elapsed : hello_.seconds);
    return all;
}

}  // namespace assay::node
