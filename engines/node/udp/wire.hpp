// What goes over the wire: the header of each data message, and the few words that both sides
// exchange about it on the control port, as JSON, repeated until answered.
//
//     sender    hello ->            what it will send, under a run's number of its own choice
//     receiver        <- welcome    or refusal, with the reason
//     sender    data  =>            to the ports after the control port, dealt out stream by stream
//     sender    end   ->            how many messages it sent on each stream, and how that went
//     receiver        <- report     how many it has
//
// No clock is compared with the other side's: the sending time serves for differences only.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay::node {

struct DataHeader {
    static constexpr std::uint32_t magic_word = 0x41555031;  // "AUP1"
    static constexpr std::size_t bytes = 32;

    std::uint32_t stream = 0;
    std::uint64_t run = 0, sequence = 0, sent_at = 0;

    void put(std::byte* to) const {
        const std::uint32_t words[2] = {htobe32(magic_word), htobe32(stream)};
        const std::uint64_t longs[3] = {htobe64(run), htobe64(sequence), htobe64(sent_at)};
        std::memcpy(to, words, sizeof words);
        std::memcpy(to + sizeof words, longs, sizeof longs);
    }
    // False when it is no message of ours. `from` has `bytes` at least.
    bool get(const std::byte* from) {
        std::uint32_t words[2];
        std::uint64_t longs[3];
        std::memcpy(words, from, sizeof words);
        std::memcpy(longs, from + sizeof words, sizeof longs);
        stream = be32toh(words[1]);
        run = be64toh(longs[0]);
        sequence = be64toh(longs[1]);
        sent_at = be64toh(longs[2]);
        return be32toh(words[0]) == magic_word;
    }
};

// The payload behind the header is the same in every message of a run.
std::vector<std::byte> payload_of(std::uint64_t run, std::size_t size);

struct Hello {
    std::uint64_t run = 0, size = 0, planned = 0;  // planned: messages of each stream
    std::uint32_t streams = 0;
    double rate = 0, seconds = 0;  // rate: B/s of each stream
    std::string host{};            // the sender's

    double offered() const { return rate * streams; }
};

struct Welcome {
    std::uint64_t run = 0;
    std::uint32_t sockets = 0;
    std::string host{};  // the receiver's
};

struct Refusal {
    std::uint64_t run = 0;
    std::string why{}, fix{};
};

struct End {
    std::uint64_t run = 0;
    std::vector<std::uint64_t> sent{};  // messages of each stream
    double rate = 0;                    // payload sent, B/s
    std::uint64_t dropped = 0;          // messages that the sender's own queue may have dropped
    double pause = 0;                   // seconds
    bool gso = false;
};

struct Report {
    std::uint64_t run = 0, received = 0, lost = 0;
    double bandwidth = 0;
};

// Exactly one of them is there.
struct Word {
    std::optional<Hello> hello{};
    std::optional<Welcome> welcome{};
    std::optional<Refusal> refusal{};
    std::optional<End> end{};
    std::optional<Report> report{};
};

std::string encode(const Hello&);
std::string encode(const Welcome&);
std::string encode(const Refusal&);
std::string encode(const End&);
std::string encode(const Report&);
std::optional<Word> decode(
    std::string_view datagram);  // none when it is not of ours, whatever it holds

}  // namespace assay::node
