// The libfabric transport (see ofi.hpp).
#include "transport/ofi/ofi.hpp"

#include "core/error.hpp"

#ifdef ASSAY_LIBFABRIC

#include <fmt/format.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/direct/stream_transport.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/flow.hpp"
#include "transport/ofi/greeting.hpp"
#include "transport/ofi/lengths.hpp"
#include "transport/yield_or_sleep.hpp"

namespace assay {
namespace {

using direct::Hello;
using direct::Listener;
using direct::Membership;
using direct::MeshSettings;
using ofi::Buffer;
using ofi::Endpoint;
using ofi::Flow;

constexpr std::string_view name_prefix = "ofi:";
constexpr std::size_t max_name_bytes = sizeof(Hello::transport) - 1;

constexpr int max_pieces = 64;  // of an outbox that are copied at once

// In front of every message.
struct Prefix {
    std::uint64_t number;              // of a message with bytes of the stream
    std::uint64_t consumed_by_sender;  // how many messages of the receiver the sender has consumed
    std::uint32_t from, bytes;
    std::array<unsigned char, 8> tag;  // of all above
};
static_assert(sizeof(Prefix) == 32);

using Key = std::array<unsigned char, crypto_shorthash_siphash24_KEYBYTES>;

std::array<unsigned char, 8> compute_tag(const Prefix& prefix, const Key& key) {
    std::array<unsigned char, 8> tag;
    crypto_shorthash_siphash24(tag.data(), reinterpret_cast<const unsigned char*>(&prefix),
                               sizeof prefix - sizeof prefix.tag, key.data());
    return tag;
}

// The messages to and from one peer.
struct Channel {
    explicit Channel(ofi::Lengths both) : lengths(both), flow(both.halvings) {}

    static constexpr std::size_t acknowledgement = Flow::most_submitted;  // the last of the buffers

    int peer = -1;
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::string name;  // the provider's address, if it is a text (shared memory)
    Key key{};
    const ofi::Lengths lengths;  // that both ends take
    Flow flow;
    ofi::Memory memory;
    std::array<Buffer, Flow::most_submitted + 1> buffers;
    // Filled, and refused by the provider for now.
    std::array<bool, Flow::most_submitted + 1> unsubmitted{};
    // Positions in the stream: up to which it is copied to buffers, and the end of each buffer.
    std::uint64_t copied = 0;
    std::array<std::uint64_t, Flow::most_submitted> ends{};
    std::uint64_t finished = 0;  // messages that the provider has sent, without a gap
    std::size_t consumed = 0;    // bytes of the next message in order
    bool is_usable() const { return address != FI_ADDR_UNSPEC; }
    bool is_busy() const { return std::ranges::any_of(buffers, &Buffer::busy); }
};

class Ofi final : public direct::StreamTransport {
public:
    Ofi(Listener listener, Membership self, MeshSettings settings,
        std::unique_ptr<Endpoint> endpoint, ofi::Lengths lengths)
        : StreamTransport(std::move(listener), std::move(self), std::move(settings)),
          endpoint_(std::move(endpoint)),
          lengths_(lengths),
          channels_(static_cast<std::size_t>(size())),
          sockets_(static_cast<std::size_t>(size()), -1) {
        post_receives();
    }
    ~Ofi() override;

    std::string library() const override;
    std::vector<Counter> counters() const override;

private:
    Channel* channel(int peer) { return channels_[static_cast<std::size_t>(peer)].get(); }
    void post_receives();
    void attach(int peer, int socket, const Hello& hello, const session::Proof& key) override;
    void detach(int peer) override;
    void on_socket_events(int peer, std::uint32_t events) override;
    void on_outbox_filled(int) override {}
    void on_receive_posted(int) override {}
    bool is_idle(int peer) const override;
    void progress() override;
    void idle_wait(Nanoseconds idle, Nanoseconds limit) override { yield_or_sleep(idle, limit); }

    void poll_completions();
    void on_message(Buffer& buffer, std::size_t bytes, Nanoseconds time);
    void repost(Buffer& buffer);
    void deliver(int peer, Nanoseconds time);
    void send(int peer, Nanoseconds time);
    void release_sent(Channel& to);
    void fill_message(Channel& to, std::size_t index, Nanoseconds time);
    void begin_message(Channel& to, Buffer& buffer, std::size_t bytes);
    void submit(Channel& to, std::size_t index);
    Buffer& receive_buffer(int number) { return receives_[static_cast<std::size_t>(number)]; }

    std::unique_ptr<Endpoint> endpoint_;
    const ofi::Lengths lengths_;  // that this rank receives
    ofi::Memory memory_;          // of the receives
    std::vector<Buffer> receives_;
    std::vector<Buffer*> unposted_;
    std::vector<std::unique_ptr<Channel>> channels_, retired_;
    std::vector<int> sockets_;
    bool lost_peer_ = false;
    std::vector<Endpoint::Completion> completions_;
    std::uint64_t refused_ = 0;
    // The lost peer, if the provider is shared memory. Then messages between the other ranks
    // sometimes stop (seen with libfabric 1.17), so this rank ends with an error.
    int dead_peer_ = -1;
};

// After the loss of a peer the endpoint is not closed: libfabric 1.17 sometimes crashes with
// SIGSEGV when an endpoint with a broken connection is closed (a host whose link is down, ofi:tcp).
// The endpoint is kept until the process ends, with the memory that it may still write to.
Ofi::~Ofi() {
    if (!lost_peer_) {
        endpoint_->stop();
        return;
    }
    struct Abandoned {
        ofi::Memory memory;
        std::vector<Buffer> receives;
        std::vector<std::unique_ptr<Channel>> channels, retired;
        std::unique_ptr<Endpoint> endpoint;
    };
    static std::vector<Abandoned>& abandoned = *new std::vector<Abandoned>;
    abandoned.push_back({std::move(memory_), std::move(receives_), std::move(channels_),
                         std::move(retired_), std::move(endpoint_)});
}

void Ofi::post_receives() {
    const std::size_t receive_buffers =
        static_cast<std::size_t>(size() - 1) * lengths_.receives_per_peer();
    const std::size_t count = std::min(receive_buffers, endpoint_->max_receives());
    if (count == 0) return;
    memory_ = endpoint_->allocate(count * lengths_.largest);
    receives_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
        Buffer& buffer = receives_[i];
        buffer.data = memory_.data() + i * lengths_.largest;
        buffer.description = memory_.description();
        buffer.bytes = lengths_.largest;
        repost(buffer);
    }
}

void Ofi::repost(Buffer& buffer) {
    const long status = endpoint_->receive(buffer);
    if (status == -FI_EAGAIN) unposted_.push_back(&buffer);
    else if (status != 0)
        throw Error(fmt::format("libfabric's {} takes no receive: {}", endpoint_->provider(),
                                ofi::error_text(status)),
                    "see 'fi_info -v', or choose another provider");
}

// --- Peers -------------------------------------------------------------------------------------

void Ofi::attach(int peer, int socket, const Hello& hello, const session::Proof& key) {
    const auto greeting = ofi::Greeting::read(std::span(hello.extra).first(hello.extra_length));
    auto channel = std::make_unique<Channel>(lengths_.common(greeting.largest));
    channel->peer = peer;
    std::copy_n(key.begin(), channel->key.size(), channel->key.begin());
    channel->memory = endpoint_->allocate(channel->buffers.size() * channel->lengths.largest);
    for (std::size_t i = 0; i < channel->buffers.size(); ++i) {
        channel->buffers[i].data = channel->memory.data() + i * channel->lengths.largest;
        channel->buffers[i].description = channel->memory.description();
        channel->buffers[i].owner = channel.get();
    }
    std::array<unsigned char, sizeof hello.extra + 1> address{};  // with a zero after a text
    std::ranges::copy(greeting.address, address.begin());
    if (channel->lengths.largest <= sizeof(Prefix) ||
        !endpoint_->insert(std::span(address).first(greeting.address.size()), channel->address))
        channel->address = FI_ADDR_UNSPEC;
    channel->name = reinterpret_cast<const char*>(address.data());
    sockets_[static_cast<std::size_t>(peer)] = socket;
    channels_[static_cast<std::size_t>(peer)] = std::move(channel);
}

void Ofi::detach(int peer) {
    if (!has_left(peer)) {
        lost_peer_ = true;
        if (!endpoint_->reaches_other_hosts()) dead_peer_ = peer;
    }
    sockets_[static_cast<std::size_t>(peer)] = -1;
    std::unique_ptr<Channel> channel = std::move(channels_[static_cast<std::size_t>(peer)]);
    reset(peer);
    if (!channel) return;  // a peer that was never reached
    channel->flow.clear([this](int buffer) { unposted_.push_back(&receive_buffer(buffer)); });
    endpoint_->remove_stale_memory(channel->name);
    // The provider may still have messages of it: the memory lives until they have ended.
    retired_.push_back(std::move(channel));
}

// The connection carries nothing after the hello: its end shows the end of the peer's process.
void Ofi::on_socket_events(int peer, std::uint32_t) {
    std::array<std::byte, 64> ignored;
    for (;;) {
        const int socket = sockets_[static_cast<std::size_t>(peer)];
        if (socket < 0) return;
        const ssize_t n = recv(socket, ignored.data(), ignored.size(), MSG_DONTWAIT);
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        if (n < 0 && errno == EAGAIN) return;
        const std::string reason = n == 0 ? "its process ended" : std::strerror(errno);
        poll_completions();
        if (channel(peer)) deliver(peer, now());
        if (is_connected(peer)) end_peer(peer, reason);
        return;
    }
}

// A rank may leave when all its messages were consumed: the end of its process can overtake a
// message.
bool Ofi::is_idle(int peer) const {
    const Channel* channel = channels_[static_cast<std::size_t>(peer)].get();
    return StreamTransport::is_idle(peer) && (!channel || channel->flow.all_acknowledged());
}

// --- Messages ----------------------------------------------------------------------------------

void Ofi::progress() {
    mesh().poll();
    poll_completions();
    if (dead_peer_ >= 0) {
        // The job may end without destructors.
        endpoint_->remove_stale_memory(
            {endpoint_->address().begin(), endpoint_->address().end() - 1});
        throw Error(fmt::format("rank {} was lost, and libfabric's {} does not go on after that",
                                dead_peer_, endpoint_->provider()),
                    "start again; over tcp, udp and ofi:tcp the others go on");
    }
    const Nanoseconds time = now();
    for (int peer = 0; peer < size(); ++peer) {
        if (channel(peer)) deliver(peer, time);
        if (channel(peer)) send(peer, time);
    }
}

void Ofi::poll_completions() {
    completions_.clear();
    endpoint_->poll(completions_);
    const Nanoseconds time = completions_.empty() ? 0 : now();
    for (std::size_t i = 0; i < completions_.size(); ++i) {
        const Endpoint::Completion done = completions_[i];
        auto* const owner = static_cast<Channel*>(done.buffer->owner);
        if (owner) {
            // Errors of a retired channel do not matter.
            if (done.error != 0 && channel(owner->peer) == owner)
                end_peer(owner->peer, "libfabric: " + ofi::error_text(done.error));
        } else if (done.error != 0) {
            ++refused_;
            repost(*done.buffer);
        } else {
            on_message(*done.buffer, done.bytes, time);
        }
    }
    std::erase_if(retired_, [this](const std::unique_ptr<Channel>& channel) {
        if (channel->is_busy()) return false;
        if (channel->is_usable()) endpoint_->remove(channel->address);
        return true;
    });
    std::vector<Buffer*> unposted = std::exchange(unposted_, {});
    for (Buffer* buffer : unposted) repost(*buffer);
}

void Ofi::on_message(Buffer& buffer, std::size_t bytes, Nanoseconds time) {
    Prefix prefix;
    std::memcpy(&prefix, buffer.data, sizeof prefix);
    Channel* from = nullptr;
    if (bytes >= sizeof prefix && prefix.from < static_cast<std::uint32_t>(size()) &&
        bytes - sizeof prefix == prefix.bytes)
        from = channel(static_cast<int>(prefix.from));
    if (!from || prefix.tag != compute_tag(prefix, from->key)) {
        ++refused_;
    } else if (!from->flow.on_acknowledged(prefix.consumed_by_sender, time)) {
        end_peer(from->peer, "it acknowledges what was not sent");
    } else if (prefix.bytes > 0) {
        if (from->flow.arrived(prefix.number, static_cast<int>(&buffer - receives_.data()))) return;
        ++refused_;
    }
    repost(buffer);
}

void Ofi::deliver(int peer, Nanoseconds time) {
    Channel& from = *channel(peer);
    std::string fault;
    if (inbox(peer).is_blocked() && !resume(peer, fault) && fault.empty()) return;
    while (fault.empty() && !inbox(peer).is_blocked() && from.flow.front() != Flow::none) {
        Buffer& buffer = receive_buffer(from.flow.front());
        Prefix prefix;
        std::memcpy(&prefix, buffer.data, sizeof prefix);
        from.consumed += consume(peer, buffer.data + sizeof prefix + from.consumed,
                                 prefix.bytes - from.consumed, fault);
        if (from.consumed < prefix.bytes) continue;
        from.consumed = 0;
        from.flow.consume(time);
        repost(buffer);
    }
    if (!fault.empty()) end_peer(peer, fault);
}

void Ofi::send(int peer, Nanoseconds time) {
    Channel& to = *channel(peer);
    if (!to.is_usable()) {
        end_peer(peer, "libfabric does not understand its address");
        return;
    }
    for (std::size_t index = 0; index < to.buffers.size() && channel(peer); ++index)
        if (to.unsubmitted[index]) submit(to, index);
    if (!channel(peer)) return;
    release_sent(to);
    while (channel(peer) && to.copied < outbox(peer).end() && to.flow.may_send() &&
           to.flow.next() - to.finished < to.flow.submitted()) {
        const std::size_t index = to.flow.next() % Flow::most_submitted;
        fill_message(to, index, time);
        submit(to, index);
    }
    constexpr std::size_t index = Channel::acknowledgement;
    if (!channel(peer) || !to.flow.acknowledgement_due(time) || to.buffers[index].busy ||
        to.unsubmitted[index])
        return;
    begin_message(to, to.buffers[index], 0);
    submit(to, index);
}

// Completes the sends of messages that the provider has sent, in order: it may send a message
// before earlier ones.
void Ofi::release_sent(Channel& to) {
    const auto is_done = [&to](std::size_t index) {
        return !to.buffers[index].busy && !to.unsubmitted[index];
    };
    for (; to.finished < to.flow.next() && is_done(to.finished % Flow::most_submitted);
         ++to.finished)
        outbox(to.peer).release(to.ends[to.finished % Flow::most_submitted],
                                [this](Ticket ticket) { tickets().complete(ticket, true); });
}

// Copies the next bytes of the outbox into a buffer.
void Ofi::fill_message(Channel& to, std::size_t index, Nanoseconds time) {
    direct::Outbox& out = outbox(to.peer);
    Buffer& buffer = to.buffers[index];
    std::byte* next = buffer.data + sizeof(Prefix);
    const std::size_t most = to.flow.message_bytes(to.lengths.largest) - sizeof(Prefix);
    std::size_t left = most;
    while (left > 0 && to.copied < out.end()) {
        std::array<iovec, max_pieces> pieces;
        int count = 0;
        const std::size_t bytes = out.gather(to.copied, left, pieces, count);
        for (const iovec& piece : std::span(pieces).first(static_cast<std::size_t>(count)))
            next = static_cast<std::byte*>(std::memcpy(next, piece.iov_base, piece.iov_len)) +
                   piece.iov_len;
        left -= bytes;
        to.copied += bytes;
    }
    out.commit(to.copied);
    begin_message(to, buffer, most - left);
    to.ends[index] = to.copied;
    to.flow.sent(time);
}

void Ofi::begin_message(Channel& to, Buffer& buffer, std::size_t bytes) {
    Prefix prefix{to.flow.next(),
                  to.flow.consumed(),
                  static_cast<std::uint32_t>(rank()),
                  static_cast<std::uint32_t>(bytes),
                  {}};
    prefix.tag = compute_tag(prefix, to.key);
    std::memcpy(buffer.data, &prefix, sizeof prefix);
    buffer.bytes = sizeof prefix + bytes;
    to.flow.acknowledged();
}

void Ofi::submit(Channel& to, std::size_t index) {
    const long status = endpoint_->send(to.buffers[index], to.address);
    to.unsubmitted[index] = status == -FI_EAGAIN;
    if (status != 0 && status != -FI_EAGAIN)
        end_peer(to.peer, "libfabric: " + ofi::error_text(status));
}

std::string Ofi::library() const {
    const std::uint32_t version = ofi::library().version();
    return fmt::format("libfabric {}.{} {}", FI_MAJOR(version), FI_MINOR(version),
                       endpoint_->provider());
}

std::vector<Counter> Ofi::counters() const {
    std::vector<Counter> counters = PeerTransport::counters();
    counters.push_back({"refused_messages", refused_});
    return counters;
}

std::string provider_of(const std::string& transport) {
    return transport.starts_with(name_prefix) ? transport.substr(name_prefix.size()) : "";
}

}  // namespace

std::unique_ptr<direct::PeerTransport> ofi_transport(Listener listener, Membership self,
                                                     MeshSettings settings) {
    auto endpoint = std::make_unique<Endpoint>(
        ofi::find_provider(provider_of(settings.transport), listener.address().text()));
    const std::string provider = endpoint->provider();
    const auto lengths = ofi::Lengths::of({endpoint->max_message_bytes(), endpoint->max_receives(),
                                           endpoint->reaches_other_hosts(), self.size()});
    settings.extra = ofi::Greeting{static_cast<std::uint32_t>(lengths.largest),
                                   {endpoint->address().begin(), endpoint->address().end()}}
                         .bytes();
    if (settings.extra.size() > sizeof(Hello::extra))
        throw Error(fmt::format("libfabric's {} has addresses of {} bytes, at most {} are known",
                                provider, endpoint->address().size(),
                                sizeof(Hello::extra) - sizeof(ofi::Greeting::largest)),
                    "choose another provider");
    if (!endpoint->reaches_other_hosts())
        for (const direct::Peer& peer : self.peers)
            if (peer.port != 0 && peer.address != listener.address().text())
                throw Error(fmt::format("libfabric's {} does not leave a host, and a rank is at {}",
                                        provider, peer.address),
                            "choose another provider");
    // The name has the chosen provider, so that ranks with different providers refuse each other.
    settings.transport = (std::string(name_prefix) + provider).substr(0, max_name_bytes);
    return std::make_unique<Ofi>(std::move(listener), std::move(self), std::move(settings),
                                 std::move(endpoint), lengths);
}

void check_ofi(const std::string& provider) { ofi::find_provider(provider, ""); }

}  // namespace assay

#else

namespace assay {
namespace {

[[noreturn]] void throw_without_libfabric() {
    throw Error("the engines were built without libfabric",
                "Debian: apt-get install libfabric-dev, then 'make setup'");
}

}  // namespace

std::unique_ptr<direct::PeerTransport> ofi_transport(direct::Listener, direct::Membership,
                                                     direct::MeshSettings) {
    throw_without_libfabric();
}

void check_ofi(const std::string&) { throw_without_libfabric(); }

}  // namespace assay

#endif
