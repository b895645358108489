// The stream of bytes from one rank to another: frames of a header and a payload. TCP carries the
// stream as it is, UDP in datagrams (udp/). All ranks have the same byte order.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "transport/transport.hpp"

namespace assay::direct {

enum class FrameKind : std::uint8_t { message = 1, put, get, reply, flush, flushed };

struct Header {
    std::uint16_t magic;
    FrameKind kind;
    std::uint8_t unused;
    std::int32_t tag;       // of a message
    std::uint64_t length;   // bytes of the payload; of a get: the bytes requested
    std::uint64_t offset;   // in the window
    std::uint64_t request;  // number of a get or flush, repeated in its answer
};
static_assert(sizeof(Header) == 32);
inline constexpr std::uint16_t frame_magic = 0xa55a;
inline constexpr std::uint64_t max_payload_bytes = 1ULL << 31;

inline bool has_payload(FrameKind kind) {
    return kind == FrameKind::message || kind == FrameKind::put || kind == FrameKind::reply;
}
// Whether a header has the magic, a known kind and a bounded length.
inline bool is_valid(const Header& header) {
    return header.magic == frame_magic && header.kind >= FrameKind::message &&
           header.kind <= FrameKind::flushed && header.length <= max_payload_bytes;
}

// The frames that are to be sent to a peer. Positions count the bytes of the stream from 0. Bytes
// stay here until release(): with TCP until the kernel has them, with UDP until the peer has them.
//
// A short message overtakes long ones of other tags of which no byte is sent yet. Otherwise
// requests and credits would wait behind data.
class Outbox {
public:
    static constexpr std::size_t max_short = 8U << 10;

    void add(const Header& header, const void* data, std::size_t bytes, Ticket ticket);
    // Adds a copy of the bytes: the caller may change its own at once.
    void add_copy(const Header& header, const void* data, std::size_t bytes);
    bool empty() const { return entries_.empty(); }
    std::size_t frames() const { return entries_.size(); }
    std::uint64_t begin() const { return begin_; }
    std::uint64_t end() const { return end_; }
    // The bytes before a position are sent once or released: no frame overtakes them any more.
    void commit(std::uint64_t to) { committed_ = std::max(committed_, to); }
    // Describes up to `max_bytes` bytes from a position on. Returns the number of bytes, and in
    // `count` of pieces; these are valid until release().
    std::size_t gather(std::uint64_t from, std::size_t max_bytes, std::span<iovec> pieces,
                       int& count) const;
    // Removes all bytes before a position. Calls done(ticket) for each frame that is removed.
    template <class Done>
    void release(std::uint64_t to, Done done) {
        begin_ = to;
        commit(to);
        while (!entries_.empty() && entries_.front().end() <= to) {
            const Ticket ticket = entries_.front().ticket;
            entries_.pop_front();
            done(ticket);
        }
    }
    template <class Done>
    void clear(Done done) {
        release(end_, done);
    }

private:
    struct Entry {
        Header header;
        const std::byte* data;
        std::size_t bytes;
        Ticket ticket;
        std::uint64_t begin;
        std::unique_ptr<std::byte[]> copy;
        std::uint64_t end() const { return begin + sizeof header + bytes; }
    };
    Entry& insert(Entry entry);
    bool may_overtake(const Entry& entry, const Entry& other) const;

    std::deque<Entry> entries_;
    std::uint64_t begin_ = 0, end_ = 0, committed_ = 0;
};

}  // namespace assay::direct
