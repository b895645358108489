// Encoding and decoding of all messages between ranks except event data.
//
// A message has a header with its kind and length. Numbers are in the byte order of the machine,
// which the header's magic shows. Reading checks every length, and throws Error if one is wrong.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "events/manager.hpp"
#include "events/schedule.hpp"

namespace assay::events {

using Bytes = std::vector<std::byte>;

enum class MessageKind : std::uint16_t {
    // from a rank to the manager
    hello = 1,
    done,         // a group is built, or cannot be
    parked,       // a group waits for a lost source
    peer_joined,  // this rank is connected to a rank that came back
    peer_lost,    // this rank has lost the connection to another
    damage,       // a damaged fragment
    report,       // the counts of a slice of time
    // from the manager
    welcome,  // this rank is a member
    members,  // the membership has changed
    batch,    // groups are assigned to builder units
    plan,     // from the next batch on, the steps of this rank
    stop,     // the run ends
    evict,    // this rank is no longer a member
    // between units
    request,  // of a builder unit for a group (pull)
    barrier,
    offer,    // of an event to a filter unit
    accept,   // the filter unit has a buffer for it
    confirm,  // the filter unit has it
    close,    // this rank sends no more
};

struct ControlHeader {
    std::uint32_t magic;
    MessageKind kind;
    std::uint16_t reserved;
    std::uint32_t bytes, zero;  // of the message, with this header
};
static_assert(sizeof(ControlHeader) == 16);

struct Done {
    Assignment assignment;
    Outcome outcome;
};
struct PeerLost {
    int rank;
    Epoch since;  // of the rank's membership
};
struct Damage {
    int source;  // rank
    std::uint64_t event, offset, expected, observed;
};
// The counts of one rank in one slice of time.
struct Report {
    std::uint64_t slice = 0;
    bool more = false, last = false;  // more: another part of the same report follows
    Nanoseconds span = 0;
    std::uint64_t received = 0, received_local = 0, sent = 0;  // B; local: from the rank itself
    Nanoseconds waited_credits = 0, waited_filter = 0;
    std::uint64_t assigned_events = 0;  // with a fragment of its readout unit, since the start
    std::uint64_t packets_sent = 0, packets_resent = 0;  // of the transport; in the last report
    struct Count {
        std::uint32_t bucket, count;
    };
    std::vector<Count> latency{};  // of assay::Histogram
};
struct Welcome {
    std::string label;
    std::uint64_t next_group, slice;  // the next group to be assigned; the slice that begins now
    Membership membership;
};
// Refers to a group in a slot of a builder unit. `offer` carries the bytes and messages of the
// event; `confirm` carries in `messages` the number of damaged fragments.
struct SlotMessage {
    std::uint64_t group, bytes;
    std::uint32_t slot, messages;
};
struct BarrierMessage {
    Epoch epoch;
    std::uint32_t round;
    std::uint64_t number;
};

// Sizes that no message of its channel exceeds.
inline constexpr std::size_t max_unit_message = 64;
inline constexpr std::size_t max_message_to_manager = 8192;
std::size_t max_message_from_manager(int ranks);
std::size_t max_plan_steps(int ranks);
// Receives from the manager that a rank has posted at a time.
inline constexpr int manager_buffers = 2;

Bytes encode_hello(const std::string& identity);
Bytes encode_done(const Done& done);
Bytes encode_parked(const Assignment& parked);
Bytes encode_rank(MessageKind kind, int rank);
Bytes encode_peer_lost(const PeerLost& lost);
Bytes encode_damage(const Damage& damage);
std::vector<Bytes> encode_report(const Report& report);
Bytes encode_welcome(const Welcome& welcome);
Bytes encode_members(const Membership& membership);
Bytes encode_batch(const Batch& batch);
Bytes encode_plan(const Steps& steps);
Bytes encode_empty(MessageKind kind);
Bytes encode_slot(MessageKind kind, const SlotMessage& message);
Bytes encode_barrier(const BarrierMessage& message);

// `message` may be longer than the encoded message. Throws Error if it is malformed.
MessageKind read_kind(std::span<const std::byte> message);
std::string read_hello(std::span<const std::byte> message);
Done read_done(std::span<const std::byte> message);
Assignment read_parked(std::span<const std::byte> message);
int read_rank(std::span<const std::byte> message);
PeerLost read_peer_lost(std::span<const std::byte> message);
Damage read_damage(std::span<const std::byte> message);
Report read_report(std::span<const std::byte> message);
Welcome read_welcome(std::span<const std::byte> message);
Membership read_members(std::span<const std::byte> message);
Batch read_batch(std::span<const std::byte> message);
Steps read_plan(std::span<const std::byte> message);
SlotMessage read_slot(std::span<const std::byte> message);
BarrierMessage read_barrier(std::span<const std::byte> message);

}  // namespace assay::events
