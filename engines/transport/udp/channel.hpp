// The datagrams between this rank and one peer: their layout, their tags, and a connected socket.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "session/handshake.hpp"
#include "transport/direct/frame.hpp"
#include "transport/udp/recovery.hpp"

namespace assay::udp {

enum class Kind : std::uint8_t { data = 1, acknowledgement };

// In front of every datagram.
struct Prefix {
    std::uint64_t number, offset;  // offset: in the stream; of an acknowledgement: see channel.cpp
    std::uint32_t from;
    Kind kind;
    std::array<std::uint8_t, 3> unused;
    std::array<unsigned char, 8> tag;  // of data: over all above; else over the whole datagram
};
static_assert(sizeof(Prefix) == 32);

// The message that each side sends over the pair's TCP connection before the first datagram.
struct Setup {
    std::uint16_t port, unused;
    std::uint32_t window;  // bytes of the stream that the other side may send at first
};
static_assert(sizeof(Setup) == 8);

// Received datagrams that were discarded.
struct Traffic {
    std::uint64_t forged = 0;  // datagrams with a wrong tag or layout
    std::uint64_t repeated = 0;
};

class Channel {
public:
    // `connection`: the pair's TCP connection, whose addresses the socket uses. Throws Error if no
    // socket can be opened.
    Channel(int connection, int rank, int peer, const session::Proof& key);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    int socket() const { return socket_; }
    Setup setup() const;
    // The other side's setup has arrived: datagrams may be sent.
    void begin(const Setup& peer_setup);
    bool has_begun() const { return sender_.has_value(); }

    // Reads the datagrams that have arrived. Calls take(data, bytes) for the bytes of the stream in
    // order; it returns how many it has consumed.
    template <class PassOn>
    void receive(Nanoseconds time, PassOn pass_on) {
        while (read_batch())
            for (const Arrived& arrived : batch_) accept(arrived, time, pass_on);
    }
    template <class PassOn>
    void resume(PassOn pass_on) {
        receiver_->resume(pass_on);
    }
    // Sends an acknowledgement if one is due, and, unless the host's queue is full, bytes of the
    // outbox as far as the window and its pace permit. Returns false if the host's queue is full.
    bool send(const direct::Outbox& outbox, Nanoseconds time, bool host_is_full);
    // When an acknowledgement is due; 0: none is.
    Nanoseconds acknowledge_at() const { return acknowledge_at_; }
    // Reads the kernel's reports of sent packets, such as a peer's closed port. Until they are
    // read, epoll reports an error each time.
    void drain_errors() const;
    const Sender& sender() const { return *sender_; }
    void set_share(std::size_t bytes) { sender_->set_share(bytes); }
    const Traffic& traffic() const { return traffic_; }

private:
    static constexpr std::size_t max_block_bytes = 65536, max_datagrams = 64;
    struct Arrived {
        std::span<std::byte> bytes;
        Nanoseconds time;  // when the kernel received it; 0: not known
    };
    bool read_batch();
    // Whether a datagram has the peer's tag and a valid layout; sets `prefix`.
    bool verify_datagram(std::span<const std::byte> datagram, Prefix& prefix);
    void accept_acknowledgement(const Arrived& arrived, std::uint64_t granted, Nanoseconds time);
    template <class PassOn>
    void accept(const Arrived& arrived, Nanoseconds time, PassOn pass_on) {
        const std::span<const std::byte> datagram = arrived.bytes;
        Prefix prefix;
        if (!verify_datagram(datagram, prefix)) {
            ++traffic_.forged;
        } else if (prefix.kind == Kind::acknowledgement) {
            accept_acknowledgement(arrived, prefix.offset, time);
        } else {
            const auto payload = datagram.subspan(sizeof prefix);
            if (!receiver_->on_datagram(prefix.number, prefix.offset, payload.data(),
                                        payload.size(), pass_on))
                ++traffic_.repeated;
            else receiver_->set_arrival(prefix.number, arrived.time);
        }
    }
    bool acknowledge();
    Nanoseconds acknowledgement_delay() const;
    bool send_batch(const direct::Outbox& outbox, Nanoseconds time);
    bool transmit(std::span<iovec> pieces, std::size_t bytes, std::size_t segment);
    void fit_path();
    std::array<unsigned char, 8> compute_tag(std::span<const std::byte> bytes) const;

    const int rank_, peer_;
    int socket_ = -1;
    std::uint32_t window_ = 0;
    std::size_t max_bytes_ = 0;  // of the stream in a datagram
    std::array<unsigned char, 16> key_;
    std::optional<Sender> sender_;
    std::optional<Receiver> receiver_;
    std::uint64_t acknowledgements_ = 0;
    Nanoseconds acknowledge_at_ = 0;  // 0: none
    bool refused_ = false;            // whether a full queue of the host refused the last datagrams
    bool segments_ = true;            // whether the kernel splits a send into datagrams (GSO)
    std::vector<std::byte> buffer_;
    std::vector<Arrived> batch_;
    Traffic traffic_;
};

}  // namespace assay::udp
