// A message from a readout unit to a builder unit: the fragments of an event group (one or more
// successive events) from one source.
//
// Each fragment carries the stamp of its event and source, its size, and a checksum. Its bytes are
// a function of event and source, so that a wrong byte can be located. Headers have checksums of
// their own, so that a message of an earlier group can be distinguished from a damaged one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "events/sizes.hpp"

namespace assay::events {

// Successive events whose fragments share a message.
struct EventGroup {
    std::uint64_t number, first_event;
    std::uint32_t events;
};

struct MessageHeader {
    std::uint32_t magic, source;
    std::uint64_t group, first_event;
    std::uint32_t events, reserved;
    std::uint64_t bytes;  // of the message, with this header
    std::uint64_t run_id[2];
    std::uint64_t checksum;  // XXH3 of the fields before
};
struct FragmentHeader {
    std::uint64_t event;
    std::uint32_t source, size;
    std::uint64_t content;   // XXH3 of the bytes, seeded with event and source; 0: not verified
    std::uint64_t checksum;  // XXH3 of the fields before
};
static_assert(sizeof(MessageHeader) == 64 && sizeof(FragmentHeader) == 32);

inline constexpr std::size_t min_message =
    sizeof(MessageHeader) + sizeof(FragmentHeader) + sizeof(std::uint64_t);

// The parameters that are common to all messages of a run.
struct Format {
    Sizes sizes;
    std::uint64_t run_id;  // distinguishes messages of this run from those of others
    bool verify;

    std::size_t message_bytes(int source, const EventGroup& group) const;
    std::size_t payload_bytes(int source, const EventGroup& group) const;
    std::size_t capacity(int source, std::uint32_t events) const;  // no message is larger
};

// Writes the message. `out` is 8-byte aligned and holds capacity(). Returns its bytes.
std::size_t write_message(std::byte* out, const Format& format, int source,
                          const EventGroup& group);

struct WrongByte {
    std::uint64_t event, offset, expected, observed;  // the 8 bytes around the offset
};
struct MessageCheck {
    // `unexpected`: an intact message of another group or source, which came twice or into the
    // wrong buffer.
    enum class State : std::uint8_t { intact, damaged, unexpected };
    State state = State::intact;
    std::uint64_t payload = 0;             // verified bytes
    std::vector<std::uint32_t> damaged{};  // indices in the group, ascending
    std::vector<WrongByte> wrong_bytes{};  // at most 4
};

// `in` is 8-byte aligned and holds capacity() bytes; of them only verified sizes are read.
MessageCheck verify_message(const std::byte* in, const Format& format, int source,
                            const EventGroup& group);

}  // namespace assay::events
