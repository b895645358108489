// Composes, sends, receives and checks datagrams (see channel.hpp).
#include "transport/udp/channel.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/error.hpp"
#include "transport/direct/rendezvous.hpp"

#ifndef UDP_GRO
#define UDP_GRO 104  // from linux/udp.h, which conflicts with netinet/udp.h
#endif
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

namespace assay::udp {
namespace {

constexpr std::size_t max_stream_bytes = 16320;  // four datagrams fill a send of 64 KiB
constexpr std::size_t min_path_mtu = 576;        // path MTU that every path has (RFC 791)
constexpr std::size_t socket_buffer_bytes = 32U << 20;
constexpr std::uint32_t max_receive_window = 8U << 20;
constexpr std::size_t max_send_bytes = 65000;  // of one sendmsg, which the kernel may split (GSO)
constexpr Nanoseconds min_acknowledgement_delay = 250'000, max_acknowledgement_delay = 8'000'000;
constexpr int receive_count = 8;  // buffers of one recvmmsg

direct::Address address_of(int socket, bool of_peer) {
    direct::Address address;
    address.length = sizeof address.storage;
    auto* storage = reinterpret_cast<sockaddr*>(&address.storage);
    const int status = of_peer ? getpeername(socket, storage, &address.length)
                               : getsockname(socket, storage, &address.length);
    if (status != 0) address = {};
    return address;
}

// The clock of the kernel's time stamps. It may be set at any time.
Nanoseconds stamp_clock() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return Nanoseconds{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The body of an acknowledgement. The offset in its prefix is the end of the bytes that the
// receiver grants. The ranges of numbers are listed from the highest down; `end` is the end of the
// first; for `arrival` and `answered` see Acknowledgement.
struct AcknowledgementBody {
    std::uint64_t end;
    Nanoseconds arrival, answered;
    struct {
        std::uint32_t length, gap;  // numbers that have arrived; missing numbers below them
    } ranges[max_reported];
};

}  // namespace

Channel::Channel(int connection, int rank, int peer, const session::Proof& key)
    : rank_(rank), peer_(peer), buffer_(receive_count * max_block_bytes) {
    std::copy_n(key.begin(), key_.size(), key_.begin());
    direct::Address own_address = address_of(connection, false),
                    other = address_of(connection, true);
    if (own_address.length == 0 || other.length == 0) return;  // it is gone already; the mesh tells
    own_address.set_port(0);
    socket_ = ::socket(own_address.storage.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0 || bind(socket_, own_address.data(), own_address.length) != 0)
        throw Error(fmt::format("cannot open a UDP socket on {}: {}", own_address.text(),
                                std::strerror(errno)),
                    "check the limit on open files (ulimit -n)");
    // Until the peer's port is known, the socket is connected to the discard port, so that no
    // datagrams pass. If this fails, their tags are refused.
    other.set_port(9);
    [[maybe_unused]] const int status = connect(socket_, other.data(), other.length);
    const int buffer_bytes = socket_buffer_bytes, enabled = 1, probe = IP_PMTUDISC_DO;
    if (setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
        setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    if (setsockopt(socket_, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
        setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    setsockopt(socket_, IPPROTO_UDP, UDP_GRO, &enabled, sizeof enabled);
    setsockopt(socket_, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
    setsockopt(socket_, SOL_SOCKET, SO_TIMESTAMPNS, &enabled, sizeof enabled);
    // A datagram that a full queue of this host drops is then an error (ENOBUFS), not a loss.
    const bool v4 = own_address.storage.ss_family == AF_INET;
    setsockopt(socket_, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, &enabled,
               sizeof enabled);
    int size = 0;
    socklen_t length = sizeof size;
    getsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &size, &length);
    // The kernel's own structures take about as much of the buffer as the bytes.
    window_ = std::min<std::uint32_t>(max_receive_window, static_cast<std::uint32_t>(size) / 2);
    receiver_.emplace(window_);
}

Channel::~Channel() {
    if (socket_ >= 0) close(socket_);
}

Setup Channel::setup() const {
    return {socket_ < 0 ? std::uint16_t{0} : address_of(socket_, false).port(), 0, window_};
}

void Channel::begin(const Setup& peer_setup) {
    direct::Address other = address_of(socket_, true);
    other.set_port(peer_setup.port);
    if (connect(socket_, other.data(), other.length) != 0) return;
    fit_path();
    sender_.emplace(max_bytes_, peer_setup.window);
}

// Sets the datagram size to the largest that the path carries in one packet.
void Channel::fit_path() {
    const bool v4 = address_of(socket_, false).storage.ss_family == AF_INET;
    int path_mtu = 0;
    socklen_t length = sizeof path_mtu;
    if (getsockopt(socket_, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &path_mtu,
                   &length) != 0)
        path_mtu = 1500;
    const std::size_t headers = (v4 ? 20 : 40) + sizeof(udphdr) + sizeof(Prefix);
    max_bytes_ =
        std::min(std::max<std::size_t>(static_cast<std::size_t>(path_mtu), min_path_mtu) - headers,
                 max_stream_bytes);
    if (sender_) sender_->set_max_bytes(max_bytes_);
}

std::array<unsigned char, 8> Channel::compute_tag(std::span<const std::byte> bytes) const {
    std::array<unsigned char, 8> tag;
    crypto_shorthash_siphash24(tag.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                               bytes.size(), key_.data());
    return tag;
}

// --- Receiving ---------------------------------------------------------------------------------

// Reads datagrams into the batch with one call. Returns false if there are none.
bool Channel::read_batch() {
    std::array<mmsghdr, receive_count> messages{};
    std::array<iovec, receive_count> pieces;
    std::array<std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(timespec))>,
               receive_count>
        controls;
    for (std::size_t i = 0; i < receive_count; ++i) {
        pieces[i] = {buffer_.data() + i * max_block_bytes, max_block_bytes};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_control = controls[i].data();
        messages[i].msg_hdr.msg_controllen = controls[i].size();
    }
    batch_.clear();
    const int count = recvmmsg(socket_, messages.data(), receive_count, MSG_DONTWAIT, nullptr);
    for (int i = 0; i < count; ++i) {
        mmsghdr& message = messages[static_cast<std::size_t>(i)];
        std::size_t segment = message.msg_len;
        Nanoseconds arrival = 0;
        for (cmsghdr* c = CMSG_FIRSTHDR(&message.msg_hdr); c;
             c = CMSG_NXTHDR(&message.msg_hdr, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
                timespec stamp;
                std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
                arrival = Nanoseconds{stamp.tv_sec} * 1'000'000'000 + stamp.tv_nsec;
            }
            int size = 0;
            if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO) continue;
            std::memcpy(&size, CMSG_DATA(c), sizeof size);
            if (size > 0) segment = static_cast<std::size_t>(size);
        }
        std::byte* data = buffer_.data() + static_cast<std::size_t>(i) * max_block_bytes;
        for (std::size_t offset = 0; offset < message.msg_len; offset += segment)
            batch_.push_back(
                {{data + offset, std::min<std::size_t>(segment, message.msg_len - offset)},
                 arrival});
    }
    return count > 0;
}

bool Channel::verify_datagram(std::span<const std::byte> datagram, Prefix& prefix) {
    if (datagram.size() < sizeof prefix) return false;
    std::memcpy(&prefix, datagram.data(), sizeof prefix);
    if (prefix.from != static_cast<std::uint32_t>(peer_)) return false;
    const auto covered = datagram.first(sizeof prefix - sizeof prefix.tag);
    if (prefix.kind == Kind::data) return prefix.tag == compute_tag(covered);
    if (prefix.kind != Kind::acknowledgement) return false;
    std::array<std::byte, sizeof(Prefix) + sizeof(AcknowledgementBody)> copy;
    if (datagram.size() > copy.size()) return false;
    const auto payload = datagram.subspan(sizeof prefix);
    std::ranges::copy(payload, std::ranges::copy(covered, copy.begin()).out);
    return prefix.tag == compute_tag(std::span(copy).first(covered.size() + payload.size()));
}

void Channel::accept_acknowledgement(const Arrived& arrived, std::uint64_t granted,
                                     Nanoseconds time) {
    AcknowledgementBody body;
    const auto bytes = arrived.bytes.subspan(sizeof(Prefix));
    constexpr std::size_t fixed = offsetof(AcknowledgementBody, ranges);
    if (bytes.size() < fixed || (bytes.size() - fixed) % sizeof body.ranges[0] != 0) return;
    std::memcpy(&body, bytes.data(), bytes.size());
    constexpr Nanoseconds latest = Nanoseconds{1} << 62;
    if (std::min(body.arrival, body.answered) < 0 || std::max(body.arrival, body.answered) > latest)
        return;
    Acknowledgement acknowledgement{granted, {}, body.arrival, body.answered};
    acknowledgement.received = arrived.time == 0 ? time : now() - (stamp_clock() - arrived.time);
    std::uint64_t end = body.end;
    for (std::size_t i = 0; i < (bytes.size() - fixed) / sizeof body.ranges[0]; ++i) {
        const auto [length, gap] = body.ranges[i];
        if (length > end) return;
        acknowledgement.ranges.emplace_back(end - length, end);
        if (gap > end - length) return;
        end -= length + std::uint64_t{gap};
    }
    std::ranges::reverse(acknowledgement.ranges);
    if (sender_) sender_->acknowledge(acknowledgement, time);
}

// --- Sending -----------------------------------------------------------------------------------

// False: the host's queue is full.
bool Channel::acknowledge() {
    const Acknowledgement acknowledgement = receiver_->acknowledge(stamp_clock());
    struct {
        Prefix prefix;
        AcknowledgementBody body;
    } datagram{};
    datagram.prefix = {++acknowledgements_,
                       acknowledgement.granted,
                       static_cast<std::uint32_t>(rank_),
                       Kind::acknowledgement,
                       {},
                       {}};
    datagram.body.arrival = acknowledgement.arrival;
    datagram.body.answered = acknowledgement.answered;
    std::size_t count = 0;
    for (auto range = acknowledgement.ranges.rbegin(); range != acknowledgement.ranges.rend();
         ++range) {
        const auto below = std::next(range);
        if (count == 0) datagram.body.end = range->second;
        // Numbers more than 2^32 back do not matter to the sender any more.
        constexpr std::uint64_t max_value = std::numeric_limits<std::uint32_t>::max();
        const std::uint64_t length = range->second - range->first,
                            gap = below == acknowledgement.ranges.rend()
                                      ? 0
                                      : range->first - below->second;
        const bool fits = std::max(length, gap) <= max_value;
        datagram.body.ranges[count++] = {static_cast<std::uint32_t>(std::min(length, max_value)),
                                         fits ? static_cast<std::uint32_t>(gap) : 0};
        if (!fits) break;
    }
    const std::size_t body =
        offsetof(AcknowledgementBody, ranges) + count * sizeof datagram.body.ranges[0];
    std::array<std::byte, sizeof datagram> covered;
    constexpr std::size_t front = sizeof(Prefix) - sizeof(Prefix::tag);
    std::memcpy(covered.data(), &datagram, front);
    std::memcpy(covered.data() + front, &datagram.body, body);
    datagram.prefix.tag = compute_tag(std::span(covered).first(front + body));
    const ssize_t n = ::send(socket_, &datagram, sizeof datagram.prefix + body, MSG_DONTWAIT);
    return n >= 0 || (errno != ENOBUFS && errno != EAGAIN);
}

// An acknowledgement waits this long, because each lowers the rate of this side's own data.
Nanoseconds Channel::acknowledgement_delay() const {
    return std::clamp<Nanoseconds>(sender_->round_trip() / 3, min_acknowledgement_delay,
                                   max_acknowledgement_delay);
}

bool Channel::send(const direct::Outbox& outbox, Nanoseconds time, bool host_is_full) {
    if (!receiver_->acknowledgement_due()) acknowledge_at_ = 0;
    else if (acknowledge_at_ == 0) acknowledge_at_ = time + acknowledgement_delay();
    if (acknowledge_at_ != 0 && (receiver_->acknowledgement_urgent() || time >= acknowledge_at_)) {
        const bool sent = acknowledge();
        acknowledge_at_ = sent ? 0 : time + min_acknowledgement_delay;
        if (!sent) receiver_->repeat_acknowledgement();
    }
    sender_->expire(time, outbox.end());
    if (host_is_full) return true;
    refused_ = false;
    while (send_batch(outbox, time)) {
    }
    return !refused_;
}

void Channel::drain_errors() const {
    std::array<std::byte, 64> ignored;
    while (recv(socket_, ignored.data(), ignored.size(), MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
    }
    int error = 0;  // pending, and cleared by this call
    socklen_t length = sizeof error;
    getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &length);
}

// Sends datagrams of equal size, and a last one that may be shorter, with one call. Returns false
// if no more can be sent now.
bool Channel::send_batch(const direct::Outbox& outbox, Nanoseconds time) {
    std::array<Prefix, max_datagrams> prefixes;
    std::array<iovec, 1024> pieces;  // UIO_MAXIOV; one datagram has fewer than 1000
    std::size_t datagrams = 0, used = 0, bytes = 0, segment = 0;
    std::uint64_t first = 0;
    const std::size_t limit = std::min(max_send_bytes, sender_->batch_bytes());
    while (datagrams < max_datagrams &&
           (datagrams == 0 || bytes + sizeof(Prefix) + max_bytes_ <= limit)) {
        const auto next = sender_->next(time, outbox.end());
        if (!next) break;
        int count = 0;
        const std::size_t gathered =
            outbox.gather(next->offset, next->length, std::span(pieces).subspan(used + 1), count);
        const std::size_t size = sizeof(Prefix) + next->length;
        // All datagrams of a call but the last are as long as the first.
        const bool fits = gathered == next->length && (datagrams == 0 || size <= segment);
        if (!fits) {
            sender_->cancel_from(next->number);
            break;
        }
        if (datagrams == 0) {
            first = next->number;
            segment = size;
        }
        Prefix& prefix = prefixes[datagrams++];
        prefix = {next->number, next->offset, static_cast<std::uint32_t>(rank_),
                  Kind::data,   {},           {}};
        prefix.tag = compute_tag(
            std::as_bytes(std::span(&prefix, 1)).first(sizeof prefix - sizeof prefix.tag));
        pieces[used] = {&prefix, sizeof prefix};
        used += 1 + static_cast<std::size_t>(count);
        bytes += size;
        if (size < segment || used + 1 >= pieces.size() || !segments_) break;
    }
    if (datagrams == 0) return false;
    if (transmit(std::span(pieces).first(used), bytes, datagrams > 1 ? segment : 0)) return true;
    if (errno == ENOBUFS || errno == EAGAIN) refused_ = true;
    sender_->cancel_from(first);
    return false;
}

bool Channel::transmit(std::span<iovec> pieces, std::size_t bytes, std::size_t segment) {
    msghdr message{};
    std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    if (segment > 0) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto size = static_cast<std::uint16_t>(segment);
        std::memcpy(CMSG_DATA(c), &size, sizeof size);
    }
    const ssize_t n = sendmsg(socket_, &message, MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(bytes)) return true;
    if (n < 0 && errno == EMSGSIZE) fit_path();
    if (n < 0 && (errno == EIO || errno == EINVAL || errno == EOPNOTSUPP)) segments_ = false;
    return false;
}

}  // namespace assay::udp
