// Encodes and decodes the control messages (see messages.hpp).
#include "events/messages.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/error.hpp"

namespace assay::events {
namespace {

constexpr std::uint32_t magic = 0x4d425645;  // "EVBM"
constexpr std::size_t max_identity = 4096, max_label = 512;

// The slot of a new group in a batch. The group's number is the first number of the batch
// plus its index.
struct PackedSlot {
    std::uint16_t builder, slot;
};

[[noreturn]] void throw_malformed() {
    throw Error("a message between ranks is damaged or of another version",
                "run the same version of Assay on every host");
}

// Appends values to a message.
class Writer {
public:
    explicit Writer(MessageKind kind) {
        const ControlHeader header{magic, kind, 0, 0, 0};
        put(header);
    }
    template <class Value>
    Writer& put(const Value& value) {
        static_assert(std::is_trivially_copyable_v<Value>);
        const auto* from = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), from, from + sizeof value);
        return *this;
    }
    template <class Value>
    Writer& put_all(std::span<const Value> values) {
        put(static_cast<std::uint32_t>(values.size()));
        const auto* from = reinterpret_cast<const std::byte*>(values.data());
        bytes_.insert(bytes_.end(), from, from + values.size_bytes());
        return *this;
    }
    Bytes finish() {
        const auto bytes = static_cast<std::uint32_t>(bytes_.size());
        std::memcpy(bytes_.data() + offsetof(ControlHeader, bytes), &bytes, sizeof bytes);
        return std::move(bytes_);
    }

private:
    Bytes bytes_;
};

// Reads values from a message; checks its header and every length.
class Reader {
public:
    explicit Reader(std::span<const std::byte> message) : remaining_(message) {
        const ControlHeader header = get<ControlHeader>();
        if (header.magic != magic || header.bytes < sizeof header || header.bytes > message.size())
            throw_malformed();
        kind = header.kind;
        remaining_ = message.subspan(sizeof header, header.bytes - sizeof header);
    }
    template <class Value>
    Value get() {
        static_assert(std::is_trivially_copyable_v<Value>);
        Value value;
        if (remaining_.size() < sizeof value) throw_malformed();
        std::memcpy(&value, remaining_.data(), sizeof value);
        remaining_ = remaining_.subspan(sizeof value);
        return value;
    }
    template <class Value>
    std::vector<Value> get_all(std::size_t max_count) {
        const auto n = get<std::uint32_t>();
        if (n > max_count || remaining_.size() / sizeof(Value) < n) throw_malformed();
        std::vector<Value> values(n);
        if (n > 0) std::memcpy(values.data(), remaining_.data(), n * sizeof(Value));
        remaining_ = remaining_.subspan(n * sizeof(Value));
        return values;
    }
    MessageKind kind{};

private:
    std::span<const std::byte> remaining_;
};

constexpr std::size_t max_ranks = 65536;

Membership get_members(Reader& in) {
    Membership members;
    members.epoch = in.get<Epoch>();
    members.since = in.get_all<Epoch>(max_ranks);
    return members;
}

std::string get_text(Reader& in, std::size_t max_count) {
    const std::vector<char> text = in.get_all<char>(max_count);
    return {text.begin(), text.end()};
}

}  // namespace

std::size_t max_message_from_manager(int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t batch =
        64 * sizeof(Reassignment) + n * std::max(sizeof(Epoch), sizeof(PackedSlot)) + max_label;
    return 1024 + std::max(batch, max_plan_steps(ranks) * 2 * sizeof(int));
}

// A plan needs one step for each other rank where its links suffice.
std::size_t max_plan_steps(int ranks) { return 4 * static_cast<std::size_t>(ranks) + 64; }

Bytes encode_hello(const std::string& identity) {
    return Writer(MessageKind::hello)
        .put_all(std::span(identity.data(), std::min(identity.size(), max_identity)))
        .finish();
}
Bytes encode_done(const Done& done) { return Writer(MessageKind::done).put(done).finish(); }
Bytes encode_parked(const Assignment& parked) {
    return Writer(MessageKind::parked).put(parked).finish();
}
Bytes encode_rank(MessageKind kind, int rank) { return Writer(kind).put(rank).finish(); }
Bytes encode_peer_lost(const PeerLost& lost) {
    return Writer(MessageKind::peer_lost).put(lost).finish();
}
Bytes encode_damage(const Damage& damage) {
    return Writer(MessageKind::damage).put(damage).finish();
}
Bytes encode_plan(const Steps& steps) {
    return Writer(MessageKind::plan)
        .put_all(std::span(steps.to))
        .put_all(std::span(steps.from))
        .finish();
}
Bytes encode_empty(MessageKind kind) { return Writer(kind).finish(); }
Bytes encode_slot(MessageKind kind, const SlotMessage& message) {
    return Writer(kind).put(message).finish();
}
Bytes encode_barrier(const BarrierMessage& message) {
    return Writer(MessageKind::barrier).put(message).finish();
}

std::vector<Bytes> encode_report(const Report& report) {
    const std::size_t part = (max_message_to_manager - 256) / sizeof(Report::Count);
    std::vector<Bytes> messages;
    std::span<const Report::Count> remaining(report.latency);
    do {
        const auto counts = remaining.subspan(0, std::min(part, remaining.size()));
        remaining = remaining.subspan(counts.size());
        Writer out(MessageKind::report);
        out.put(report.slice).put(!remaining.empty()).put(report.last).put(report.span);
        out.put(report.received).put(report.received_local).put(report.sent);
        out.put(report.waited_credits).put(report.waited_filter).put(report.assigned_events);
        out.put(report.packets_sent).put(report.packets_resent);
        messages.push_back(out.put_all(counts).finish());
    } while (!remaining.empty());
    return messages;
}

Bytes encode_welcome(const Welcome& welcome) {
    Writer out(MessageKind::welcome);
    out.put(welcome.next_group).put(welcome.slice).put(welcome.membership.epoch);
    out.put_all(std::span(welcome.membership.since));
    return out.put_all(std::span(welcome.label.data(), std::min(welcome.label.size(), max_label)))
        .finish();
}

Bytes encode_members(const Membership& membership) {
    return Writer(MessageKind::members)
        .put(membership.epoch)
        .put_all(std::span(membership.since))
        .finish();
}

Bytes encode_batch(const Batch& batch) {
    std::vector<PackedSlot> packed;
    packed.reserve(batch.new_slots.size());
    for (const BuilderSlot& slot : batch.new_slots)
        packed.push_back({static_cast<std::uint16_t>(slot.builder), slot.slot});
    Writer out(MessageKind::batch);
    out.put(batch.epoch).put(batch.number).put(batch.first);
    out.put_all(std::span<const PackedSlot>(packed));
    return out.put_all(std::span(batch.reassigned)).finish();
}

MessageKind read_kind(std::span<const std::byte> message) { return Reader(message).kind; }

std::string read_hello(std::span<const std::byte> message) {
    Reader in(message);
    return get_text(in, max_identity);
}
Done read_done(std::span<const std::byte> message) { return Reader(message).get<Done>(); }
Assignment read_parked(std::span<const std::byte> message) {
    return Reader(message).get<Assignment>();
}
int read_rank(std::span<const std::byte> message) { return Reader(message).get<int>(); }
PeerLost read_peer_lost(std::span<const std::byte> message) {
    return Reader(message).get<PeerLost>();
}
Damage read_damage(std::span<const std::byte> message) { return Reader(message).get<Damage>(); }
SlotMessage read_slot(std::span<const std::byte> message) {
    return Reader(message).get<SlotMessage>();
}
BarrierMessage read_barrier(std::span<const std::byte> message) {
    return Reader(message).get<BarrierMessage>();
}

Report read_report(std::span<const std::byte> message) {
    Reader in(message);
    Report report;
    report.slice = in.get<std::uint64_t>();
    report.more = in.get<std::uint8_t>() != 0;
    report.last = in.get<std::uint8_t>() != 0;
    report.span = in.get<Nanoseconds>();
    report.received = in.get<std::uint64_t>();
    report.received_local = in.get<std::uint64_t>();
    report.sent = in.get<std::uint64_t>();
    report.waited_credits = in.get<Nanoseconds>();
    report.waited_filter = in.get<Nanoseconds>();
    report.assigned_events = in.get<std::uint64_t>();
    report.packets_sent = in.get<std::uint64_t>();
    report.packets_resent = in.get<std::uint64_t>();
    report.latency = in.get_all<Report::Count>(max_message_to_manager / sizeof(Report::Count));
    return report;
}

Welcome read_welcome(std::span<const std::byte> message) {
    Reader in(message);
    Welcome welcome;
    welcome.next_group = in.get<std::uint64_t>();
    welcome.slice = in.get<std::uint64_t>();
    welcome.membership = get_members(in);
    welcome.label = get_text(in, max_label);
    return welcome;
}

Membership read_members(std::span<const std::byte> message) {
    Reader in(message);
    return get_members(in);
}

Batch read_batch(std::span<const std::byte> message) {
    Reader in(message);
    Batch batch;
    batch.epoch = in.get<Epoch>();
    batch.number = in.get<std::uint64_t>();
    batch.first = in.get<std::uint64_t>();
    for (const PackedSlot& slot : in.get_all<PackedSlot>(max_ranks))
        batch.new_slots.push_back({slot.builder, slot.slot});
    batch.reassigned = in.get_all<Reassignment>(max_ranks);
    return batch;
}

Steps read_plan(std::span<const std::byte> message) {
    Reader in(message);
    Steps steps{.to = in.get_all<int>(max_plan_steps(max_ranks)),
                .from = in.get_all<int>(max_plan_steps(max_ranks))};
    if (steps.to.size() != steps.from.size()) throw_malformed();
    return steps;
}

}  // namespace assay::events
