// A builder unit: gathers the fragments of an event from all readout units, verifies them, and
// gives the event to a filter unit, or drops it once it is verified.
//
// A slot is memory into which the transport receives directly, a part for each source. There is one
// for each credit, and with policy wait as many for events that wait for a lost source. A slot is
// closed, and reported to the manager, when every source has delivered or is lost.
#pragma once

#include <memory>

#include "events/member.hpp"

namespace assay::events {

class Readout;

// Bytes that a message of this source takes in a buffer.
std::size_t aligned_capacity(const Settings& settings, int source);

class Builder {
public:
    explicit Builder(Member& member);
    void connect(Readout* local) { readout_ = local; }

    void on_batch(const Batch& batch, Nanoseconds time);
    // The membership has changed: sources that came back are asked for the fragments still missing.
    void on_members();
    void on_received(int source, std::uint32_t slot, bool success, Nanoseconds time);
    // The fragment of this rank's own readout unit, which keeps it until the slot is closed.
    void take_own(std::uint32_t slot, const std::byte* data, std::size_t bytes);
    void on_take(int filter, const SlotNote& note);
    void on_taken(int filter, const SlotNote& note);
    void on_event_sent(std::uint32_t slot) { slots_[slot].sending = false; }
    // What was offered to a filter unit that is lost is offered to another.
    void on_lost(int rank);
    void advance(Nanoseconds time);
    bool quiet() const { return held_ == 0; }

    static std::size_t memory_needed(const Settings& settings);

private:
    enum class Part : std::uint8_t { absent, to_ask, awaited, verified, damaged, lost };
    enum class State : std::uint8_t { closed, gathering, waiting, delivering };
    struct Slot {
        State state = State::closed;
        Bulk bulk{};
        Nanoseconds begun = 0;       // given out
        std::uint32_t expected = 0;  // sources
        std::uint32_t open = 0;      // sources that have neither delivered nor are lost
        std::uint32_t found = 0;     // sources whose message arrived intact
        std::uint64_t verified = 0, damaged = 0, duplicate = 0;  // fragments
        std::vector<Part> parts{};                               // by source number
        std::vector<std::uint8_t> bad{};  // by event, if any fragment is damaged
        std::vector<int> asking{};        // pull: ranks, last first
        int asked = 0;                    // requests in flight
        const std::byte* own = nullptr;   // this rank's own message
        int filter = -1;                  // it is offered to
        bool sending = false;
        std::size_t together = 0;  // bytes of the event, once its messages are moved together
        Outcome outcome{};
    };

    std::byte* part_data(std::uint32_t slot, int source) const;
    void open(const Assignment& assignment, Epoch epoch, std::uint32_t expected, Nanoseconds time);
    void receive(std::uint32_t slot, int rank);
    void ask(std::uint32_t slot);
    void ask_lost(std::uint32_t slot);
    void end_part(std::uint32_t slot, int source, Part part, Nanoseconds time);
    void verify(std::uint32_t slot, int rank, Nanoseconds time);
    void gathered(std::uint32_t slot, Nanoseconds time);
    Nanoseconds wait_limit(const Slot& slot) const;
    void count(Slot& slot) const;
    void deliver(std::uint32_t slot);
    void close(std::uint32_t slot);
    void move_together(std::uint32_t slot);
    int source(int rank) const { return settings_.source_number(rank); }

    Member& member_;
    const Settings& settings_;
    Readout* readout_ = nullptr;
    std::vector<std::size_t> offsets_;  // by source number, and the end
    Memory memory_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> own_;  // slots whose own fragment was taken and is not verified
    int held_ = 0, delivering_ = 0;
    Nanoseconds blocked_ = 0;  // since when filter units hold every slot
};

}  // namespace assay::events
