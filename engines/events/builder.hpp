// A builder unit: gathers the fragments of an event from all readout units, verifies them, and
// gives the event to a filter unit, or drops it once it is verified.
//
// A slot is memory for one event group, into which the transport receives directly: a region for
// each source. There is one slot for each credit; policy wait doubles them, for events that wait
// for a lost source. A slot is closed, and reported to the manager, when every source has delivered
// or is lost.
#pragma once

#include <memory>

#include "events/rank_context.hpp"

namespace assay::events {

class Readout;

// Bytes that a message of this source takes in a buffer.
std::size_t aligned_capacity(const Settings& settings, int source);

class Builder {
public:
    explicit Builder(RankContext& context);
    void connect(Readout* local) { readout_ = local; }

    void on_batch(const Batch& batch, Nanoseconds time);
    // The membership has changed: requests missing fragments from sources that came back.
    void on_members();
    void on_received(int source, std::uint32_t slot, bool success, Nanoseconds time);
    // A message of this rank's own readout unit, which keeps it until the slot is closed.
    void on_local_message(std::uint32_t slot, const std::byte* data, std::size_t bytes);
    void on_accept(int filter, const SlotMessage& message);
    void on_confirm(int filter, const SlotMessage& message);
    void on_event_sent(std::uint32_t slot) { slots_[slot].sending = false; }
    // An event that was offered to a lost filter unit is offered to another.
    void on_lost(int rank);
    void advance(Nanoseconds time);

    static std::size_t memory_needed(const Settings& settings);

private:
    enum class SourceState : std::uint8_t { absent, to_request, awaited, verified, damaged, lost };
    // waiting: for a lost source (policy wait). delivering: to a filter unit.
    enum class State : std::uint8_t { closed, gathering, waiting, delivering };
    struct Slot {
        State state = State::closed;
        EventGroup group{};
        Nanoseconds assigned_at = 0;
        std::uint32_t expected_sources = 0;
        std::uint32_t pending_sources = 0;  // sources that have neither delivered nor are lost
        std::uint32_t arrived_sources = 0;  // whose message has arrived
        std::uint64_t verified = 0, damaged = 0, duplicate = 0;  // fragments
        std::vector<SourceState> source_states{};                // by source number
        std::vector<std::uint8_t> damaged_events{};  // by event, if any fragment is damaged
        std::vector<int> sources_to_request{};       // pull: ranks, last first
        int requests_in_flight = 0;
        const std::byte* local_data = nullptr;  // this rank's own message
        int filter = -1;                        // rank to which the event is offered; -1: none
        bool sending = false;
        std::size_t event_bytes = 0;  // of the event, once its messages are contiguous
        Outcome outcome{};
    };

    std::byte* source_data(std::uint32_t slot, int source) const;
    void open_slot(const Assignment& assignment, Epoch epoch, std::uint32_t expected,
                   Nanoseconds time);
    void receive(std::uint32_t slot, int rank);
    void send_requests(std::uint32_t slot);
    void request_from_returned(std::uint32_t slot);
    void end_source(std::uint32_t slot, int source, SourceState state, Nanoseconds time);
    void verify(std::uint32_t slot, int rank, Nanoseconds time);
    void on_gathered(std::uint32_t slot, Nanoseconds time);
    Nanoseconds wait_limit(const Slot& slot) const;
    void count_outcome(Slot& slot) const;
    void deliver(std::uint32_t slot);
    void close_slot(std::uint32_t slot);
    void compact(std::uint32_t slot);
    int source_number(int rank) const { return settings_.source_number(rank); }

    RankContext& context_;
    const Settings& settings_;
    Readout* readout_ = nullptr;
    std::vector<std::size_t> offsets_;  // by source number, and the end
    Memory memory_;
    std::vector<Slot> slots_;
    // Slots whose local message is not verified yet.
    std::vector<std::uint32_t> local_ready_;
    int delivering_ = 0;             // slots in state delivering
    Nanoseconds blocked_since_ = 0;  // time since which all slots wait for a filter unit; 0: none
};

}  // namespace assay::events
