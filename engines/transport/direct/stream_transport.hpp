// A transport over streams of bytes, one to and one from each peer: frames, matching, and one-sided
// operations as messages. A derived transport (TCP, UDP, libfabric) sends the bytes of an Outbox
// and passes the bytes that arrive to consume().
//
// A payload goes straight into the buffer of its receive if that is posted before it arrives.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "transport/direct/frame.hpp"
#include "transport/direct/matching.hpp"
#include "transport/direct/peer_transport.hpp"

namespace assay::direct {

class StreamTransport : public PeerTransport {
public:
    // Sends of up to `eager` bytes complete immediately: a copy is kept until it has arrived.
    StreamTransport(Listener listener, Membership self, MeshSettings settings,
                    std::size_t eager = 0);

    std::byte* create_window(std::size_t bytes) final;
    void free_window() final;
    Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) final;
    void put(const void* data, std::size_t bytes, int peer, std::size_t offset) final;
    void flush(int peer) final;

protected:
    // The stream from a peer.
    class Inbox {
    public:
        Inbox() : matching_(max_unexpected) {}
        // The memory for the next bytes of the payload; empty if no payload is arriving.
        std::span<std::byte> target() const { return {target_, payload_left_}; }
        bool is_blocked() const { return blocked_; }

    private:
        friend class StreamTransport;
        // Bytes of messages of one peer that are kept until their receives are posted. A message
        // that does not fit waits in the stream.
        static constexpr std::size_t max_unexpected = 16U << 20;
        Header header_{};
        std::size_t header_received_ = 0;
        std::byte* target_ = nullptr;
        std::size_t payload_left_ = 0;
        bool in_payload_ = false, blocked_ = false;
        struct Get {
            Ticket ticket;
            std::byte* data;
            std::size_t bytes;
        };
        Matching matching_;
        std::map<std::uint64_t, Get> gets_;  // by request
        std::uint64_t flushed_ = 0;  // the last request whose flush the peer has acknowledged
    };
    Outbox& outbox(int peer) { return outboxes_[static_cast<std::size_t>(peer)]; }
    Inbox& inbox(int peer) { return *inboxes_[static_cast<std::size_t>(peer)]; }

    // Processes bytes of a peer's stream. Returns their number; less than `bytes` if the stream
    // must wait for a receive (back-pressure). Sets `fault`, a
    // message about the peer, if the bytes are not valid frames.
    std::size_t consume(int peer, const std::byte* data, std::size_t bytes, std::string& fault);
    // Call it after `bytes` bytes were written to target().
    void on_payload_bytes(int peer, std::size_t bytes);
    // Tries again to begin a message that waits for a receive. Returns whether more bytes of the
    // stream can be consumed.
    bool resume(int peer, std::string& fault);
    // Called when a peer's outbox has new bytes to send.
    virtual void on_outbox_filled(int peer) = 0;
    // Called when a receive was posted for a stream that waits; resume() may succeed now.
    virtual void on_receive_posted(int peer) = 0;
    // Deletes a peer's streams and fails its tickets.
    void reset(int peer);
    bool is_idle(int peer) const override {
        return outboxes_[static_cast<std::size_t>(peer)].empty();
    }

private:
    void post_send(Ticket ticket, const void* data, std::size_t bytes, int peer, int tag) final;
    void post_receive(Ticket ticket, void* data, std::size_t bytes, int peer, int tag) final;
    void add_frame(int peer, FrameKind kind, const void* data, std::size_t bytes, Ticket ticket,
                   int tag = 0, std::uint64_t offset = 0, std::uint64_t request = 0);
    bool begin_payload(int peer, std::string& fault);
    void end_payload(int peer);

    bool is_in_window(std::uint64_t offset, std::uint64_t bytes) const;
    void answer(int peer, const Header& header, std::string& fault);

    // Sends and receives of this rank with itself that are not matched yet.
    struct SelfSend {
        Ticket ticket;
        const void* data;
        std::size_t bytes;
        int tag;
    };
    struct SelfReceive {
        Ticket ticket;
        void* data;
        std::size_t bytes;
        int tag;
    };
    const std::size_t eager_;
    std::vector<Outbox> outboxes_;
    std::vector<std::unique_ptr<Inbox>> inboxes_;
    std::vector<SelfSend> self_sends_;
    std::vector<SelfReceive> self_receives_;
    std::vector<std::byte> window_;
    std::uint64_t requests_ = 0;  // number of gets and flushes so far
};

}  // namespace assay::direct
