// One rank of an event builder: its units, their messages, and the loop that runs them. Rank 0 also
// has the event manager.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/record.hpp"
#include "events/builder.hpp"
#include "events/coordinator.hpp"
#include "events/filter.hpp"
#include "events/readout.hpp"

namespace assay::events {

class Participant {
public:
    Participant(Transport& transport, const Settings& settings, Sink& sink);

    // Returns when the run has ended on every rank. Throws Error if it cannot go on.
    void run();
    const std::string& label() const { return label_; }

private:
    struct UnitBuffer {
        alignas(8) std::byte bytes[max_unit_message];
        bool posted = false;
    };
    struct ManagerBuffer {
        Bytes bytes;
        bool arrived = false;
    };
    void send_hello();
    void read_manager_messages();
    void on_completed(const Operation& operation, bool success);
    void on_manager_message(std::span<const std::byte> message);
    void on_unit_message(int peer, std::span<const std::byte> message);
    void on_changes();
    void on_change(const PeerChange& change);
    void on_members();
    void on_stop();
    void start(const Welcome& welcome);
    void receive_from_manager(std::uint32_t buffer);
    void receive_from_unit(int peer);
    void send_report(bool last);
    void yield_if_idle(std::size_t completed, Nanoseconds wake);
    bool is_finished() const;
    [[noreturn]] void throw_timeout(Nanoseconds waited) const;

    Sink& sink_;
    RankContext context_;
    const Settings& settings_;
    const bool has_unit_messages_;
    std::optional<Coordinator> coordinator_;
    std::optional<Builder> builder_;
    std::optional<Readout> readout_;
    std::optional<Filter> filter_;
    std::vector<ManagerBuffer> from_manager_;
    std::uint32_t next_from_manager_ = 0;  // the buffer that was posted first
    std::vector<UnitBuffer> from_unit_;    // by rank
    std::vector<bool> closed_by_peer_;     // by rank: the other side sends no more
    std::vector<PeerChange> changes_;
    std::string label_;
    bool started_ = false, stopping_ = false;
    int stops_received_ = 0;
    Nanoseconds time_ = 0, last_activity_ = 0, slice_start_ = 0;
    std::uint64_t slice_ = 0;
};

}  // namespace assay::events
