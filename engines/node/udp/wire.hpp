// The protocol of the UDP measurements: the header of each data message, and the control messages
// on the control port. Control messages are JSON and are repeated until answered.
//
//     sender    hello ->            the streams that it will send, with a random run number
//     receiver        <- welcome    or refusal, with the reason
//     sender    data  =>            to the ports after the control port, round-robin by stream
//     sender    end   ->            messages sent on each stream, and the achieved rate
//     receiver        <- report     messages received
//
// With a token each control message is signed. A recorded message is useless later, because each
// run has its own token.
//
// The clocks of the two sides are never compared: only differences of sending times are used.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/token.hpp"

namespace assay::node {

// The start of each data message, big-endian: magic and stream (4 bytes each), then run, sequence
// number and time of sending in ns of the sender's clock (8 bytes each).
struct DataHeader {
    static constexpr std::uint32_t magic_word = 0x41555031;  // "AUP1"
    static constexpr std::size_t bytes = 32;

    std::uint32_t stream = 0;
    std::uint64_t run_number = 0, sequence = 0, sent_at = 0;

    void put(std::byte* to) const {
        const std::uint32_t fields_32[2] = {htobe32(magic_word), htobe32(stream)};
        const std::uint64_t fields_64[3] = {htobe64(run_number), htobe64(sequence),
                                            htobe64(sent_at)};
        std::memcpy(to, fields_32, sizeof fields_32);
        std::memcpy(to + sizeof fields_32, fields_64, sizeof fields_64);
    }
    // Returns false if it is not a message of this protocol. `from` has at least `bytes` bytes.
    bool get(const std::byte* from) {
        std::uint32_t fields_32[2];
        std::uint64_t fields_64[3];
        std::memcpy(fields_32, from, sizeof fields_32);
        std::memcpy(fields_64, from + sizeof fields_32, sizeof fields_64);
        stream = be32toh(fields_32[1]);
        run_number = be64toh(fields_64[0]);
        sequence = be64toh(fields_64[1]);
        sent_at = be64toh(fields_64[2]);
        return be32toh(fields_32[0]) == magic_word;
    }
};

// The payload of a message, with space for the header. It is the same in all messages of a run.
std::vector<std::byte> payload_of(std::uint64_t run_number, std::size_t size);

struct Hello {
    std::uint64_t run_number = 0, size = 0, messages_per_stream = 0;
    std::uint32_t streams = 0;
    double rate = 0, seconds = 0;  // rate: B/s of each stream
    std::string host{};            // the sender's

    double requested_rate() const { return rate * streams; }
};

struct Welcome {
    std::uint64_t run_number = 0;
    std::uint32_t sockets = 0;
    std::string host{};  // the receiver's
};

struct Refusal {
    std::uint64_t run_number = 0;
    std::string reason{}, fix{};
};

struct End {
    std::uint64_t run_number = 0;
    std::vector<std::uint64_t> sent{};  // messages of each stream
    double rate = 0;                    // payload sent, B/s
    std::uint64_t dropped = 0;          // messages that the sender's own queue may have dropped
    double max_lateness = 0;            // seconds, as Sent::max_lateness
    bool gso = false;
};

struct Report {
    std::uint64_t run_number = 0, received = 0, lost = 0;
    double bandwidth = 0;
};

// Exactly one member is set.
struct ControlMessage {
    std::optional<Hello> hello{};
    std::optional<Welcome> welcome{};
    std::optional<Refusal> refusal{};
    std::optional<End> end{};
    std::optional<Report> report{};
};

// Signs and verifies control messages with the token of the run, if there is one. A signed message
// ends with " " and an HMAC-SHA-256 of the text before, as 64 hexadecimal digits.
class Seal {
public:
    explicit Seal(const std::optional<session::Token>& token) : token_(token) {}
    std::string sign(std::string text) const;
    // Verifies and decodes. None: it is not a valid control message, or not of this run.
    std::optional<ControlMessage> open(std::string_view datagram) const;

private:
    std::optional<session::Token> token_;
};

std::string encode(const Hello&);
std::string encode(const Welcome&);
std::string encode(const Refusal&);
std::string encode(const End&);
std::string encode(const Report&);
// None if the datagram is not a valid control message.
std::optional<ControlMessage> decode(std::string_view datagram);

}  // namespace assay::node
