// The sending threads (see transmit.hpp).
#include "node/udp/transmit.hpp"

#include <fmt/format.h>
#include <netinet/udp.h>
#include <sys/prctl.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstring>

#ifndef UDP_SEGMENT  // defined by glibc since 2.33
#define UDP_SEGMENT 103
#endif

namespace assay::node {
namespace {

constexpr std::uint64_t max_segments = 64;  // UDP_MAX_SEGMENTS of all kernels with UDP_SEGMENT
constexpr std::uint64_t max_block_bytes = 65000;  // per block: an IP packet without headers
constexpr std::size_t max_calls = 256;            // messages of a batch without UDP_SEGMENT
constexpr Nanoseconds start_delay = 5'000'000;    // for all threads to be ready at the start
constexpr Nanoseconds grace_time = 250'000'000;   // to catch up after the planned end
constexpr Nanoseconds spin_time = 5'000;          // too short to sleep
constexpr std::uint64_t send_buffer = 4 << 20;

void sleep_until(Nanoseconds time) {
    if (time - now() > spin_time) {
        const timespec t{time / 1'000'000'000, time % 1'000'000'000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
    }
    while (now() < time) {
    }
}

bool is_gso_error(int error) {
    return error == EIO || error == EINVAL || error == EMSGSIZE || error == EOPNOTSUPP;
}

}  // namespace

struct Transmitter::Stream {
    std::uint32_t number;
    UdpSocket socket;
    Pace pace;
    bool gso;
};

// A thread. Messages differ only in their headers: each is sent from its own header and the common
// payload, which therefore stays in the first-level cache.
struct Transmitter::Worker {
    std::vector<Stream*> streams{};
    std::vector<std::byte> payload{};
    std::vector<std::array<std::byte, DataHeader::bytes>>
        message_headers{};  // of a batch, as the next two
    std::vector<std::array<iovec, 2>> parts{};
    std::array<mmsghdr, max_calls> headers{};
    std::uint64_t first_batch = 0, dropped = 0;
    Nanoseconds first = 0, last = 0, max_lateness = 0;
    std::atomic<std::uint64_t> messages = 0;
    std::jthread thread{};
};

Transmitter::Transmitter(const Hello& hello, const Route& route)
    : hello_(hello),
      route_(route),
      batch_(batch_size(hello.rate / static_cast<double>(hello.size), hello.size)),
      start_(now() + start_delay),
      limit_(start_ + static_cast<Nanoseconds>(hello.seconds * 1e9) + grace_time) {
    const double rate = hello.rate / static_cast<double>(hello.size);
    const Address control = route.receiver;
    // The port has the same offset in sockaddr_in6.
    const int control_port = ntohs(reinterpret_cast<const sockaddr_in&>(control.storage).sin_port);
    for (std::uint32_t s = 0; s < hello.streams; ++s) {
        UdpSocket socket(control);
        const Address to =
            control.with_port(control_port + 1 + static_cast<int>(s % route.sockets));
        // Never fragment, unless --fragments is given.
        const int discover = route.fragments ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO;
        control.is_ipv6() ? socket.set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, discover)
                          : socket.set(IPPROTO_IP, IP_MTU_DISCOVER, discover);
        // Reports packets dropped by this host's own queue (ENOBUFS).
        control.is_ipv6() ? socket.set(IPPROTO_IPV6, IPV6_RECVERR, 1)
                          : socket.set(IPPROTO_IP, IP_RECVERR, 1);
        socket.enlarge(false, send_buffer);
        const timeval limit{0, 100'000};
        setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(socket.fd(), to.get(), to.length) != 0)
            throw Error(
                fmt::format("cannot send to {}: {}", to.with_port_text(), std::strerror(errno)),
                "check the route with 'ip route'");
        const bool gso = route.gso && batch_ > 1 &&
                         !socket.set(IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(hello.size));
        const double phase = static_cast<double>(s) / hello.streams;
        streams_.push_back(std::make_unique<Stream>(
            s, std::move(socket), Pace(rate, hello.messages_per_stream, batch_, phase), gso));
    }
    const auto payload = payload_of(hello.run_number, hello.size);
    for (int t = 0; t < std::min(route.threads, static_cast<int>(hello.streams)); ++t) {
        Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
        for (auto s = static_cast<std::size_t>(t); s < streams_.size();
             s += static_cast<std::size_t>(route.threads))
            worker.streams.push_back(streams_[s].get());
        worker.payload = payload;
        worker.message_headers.resize(batch_);
        for (auto& header : worker.message_headers)
            worker.parts.push_back(
                {iovec{header.data(), header.size()},
                 iovec{worker.payload.data() + header.size(), payload.size() - header.size()}});
    }
    running_ = static_cast<int>(workers_.size());
    for (auto& worker : workers_)
        worker->thread = std::jthread([this, w = worker.get()] {
            send_loop(*w);
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

Transmitter::Stream* Transmitter::next_stream(Worker& worker) const {
    Stream* first = nullptr;
    for (Stream* stream : worker.streams)
        if (!stream->pace.done() && (first == nullptr || stream->pace.due() < first->pace.due()))
            first = stream;
    return first;
}

void Transmitter::send_loop(Worker& worker) {
    prctl(PR_SET_TIMERSLACK, 1);  // the default of 50 us is as long as a batch
    while (Stream* stream = next_stream(worker)) {
        // Sleeps in short intervals, so that a slow stream notices the end.
        const Nanoseconds due = start_ + stream->pace.due();
        while (now() < due && !is_over()) sleep_until(std::min(due, now() + grace_time / 5));
        if (is_over()) return;
        const Nanoseconds scheduled = start_ + stream->pace.scheduled(), sent_at = now();
        const std::uint64_t messages = send_batch(worker, *stream, stream->pace.batch());
        stream->pace.advance(sent_at - start_, messages);
        if (worker.first == 0) worker.first = sent_at, worker.first_batch = messages;
        worker.last = sent_at;
        worker.max_lateness = std::max(worker.max_lateness, sent_at - scheduled);
        worker.messages.fetch_add(messages, std::memory_order_relaxed);
    }
}

// Sends the stream's next `messages`. Returns how many were sent: all, unless sending is over.
std::uint64_t Transmitter::send_batch(Worker& worker, Stream& stream, std::uint64_t messages) {
    const auto sent_at = static_cast<std::uint64_t>(now());
    for (std::uint64_t m = 0; m < messages; ++m)
        DataHeader{stream.number, hello_.run_number, stream.pace.sent() + m, sent_at}.put(
            worker.message_headers[m].data());
    std::uint64_t done = 0;
    while (done < messages) {
        const std::uint64_t before = done;
        done = send_remaining(worker, stream, done, messages);
        if (done == before && is_over()) break;
    }
    return done;
}

// One system call for the rest of a batch. Returns the new `done`.
std::uint64_t Transmitter::send_remaining(Worker& worker, Stream& stream, std::uint64_t done,
                                          std::uint64_t messages) {
    const std::uint64_t block =
        stream.gso
            ? std::min(max_segments, std::max<std::uint64_t>(1, max_block_bytes / hello_.size))
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
    return done + handle_error(worker, stream, errno, std::min(block, messages - done));
}

// Handles an error with the next `block` messages. Returns how many of them are not sent again.
// Dropped messages count as sent, since their sequence numbers are used.
std::uint64_t Transmitter::handle_error(Worker& worker, Stream& stream, int error,
                                        std::uint64_t block) {
    if (error == EAGAIN || error == EINTR) return 0;
    if (error == ENOBUFS) {
        worker.dropped += block;
        return block;
    }
    if (stream.gso && is_gso_error(error)) {
        stream.gso = false;
        stream.socket.set(IPPROTO_UDP, UDP_SEGMENT, 0);
        return 0;
    }
    const std::string to = route_.receiver.with_port_text();
    if (error == ECONNREFUSED)
        fail(Error(fmt::format("{} has stopped receiving", to),
                   "see the last messages of the receiver"));
    else if (error == EMSGSIZE)
        fail(Error(
            fmt::format("messages of {} bytes are too large for the path to {}", hello_.size, to),
            "raise the MTU there (ip link set DEV mtu 9000), choose a smaller --size on both "
            "sides, or --fragments"));
    else
        fail(Error(
            fmt::format("cannot send to {}: {}", to, std::strerror(error)),
            error == EPERM ? "check this machine's firewall" : "check 'ip route' and 'ip link'"));
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
        all.max_lateness = std::max(all.max_lateness, seconds(worker->max_lateness));
        last = std::max(last, worker->last);
        if (worker->first == 0 || (first != 0 && worker->first >= first)) continue;
        first = worker->first;
        first_batch = worker->first_batch;
    }
    // The time is from the first batch to the last, so the first batch does not count: otherwise a
    // short run would look too fast.
    const double elapsed = seconds(last - first);
    const std::uint64_t timed = elapsed > 0 ? all.messages - first_batch : all.messages;
    all.rate = static_cast<double>(timed * hello_.size) / (elapsed > 0 ? elapsed : hello_.seconds);
    return all;
}

}  // namespace assay::node
