// The settings of an event builder, from the command line.
#pragma once

#include <cstdint>

#include "core/clock.hpp"
#include "core/options.hpp"
#include "events/payload.hpp"
#include "events/schedule.hpp"
#include "events/units.hpp"

namespace assay::events {

// The treatment of an event that has lost a fragment.
enum class Policy : std::uint8_t { drop, mark, wait };

struct Settings {
    bool pull, synchronised, verify;
    int in_flight, credits, parallel;
    Policy policy;
    std::int64_t fragment;     // B of one message
    double rate, filter_rate;  // B/s, 0: no limit
    Nanoseconds duration;      // 0: until `events`
    std::uint64_t events;      // 0: until `duration`
    Nanoseconds slice, timeout, yield_after;
    Units units;
    Schedule::Order order;
    std::uint64_t seed;  // of a random order
    Plan plan;           // if the order is a plan's
    Format format;
    std::uint32_t events_per_message;

    Schedule schedule_of(int rank) const {
        return {order, seed, order == Schedule::Order::file ? plan.of(rank) : Steps{}};
    }
    // Whether groups are assigned in rounds: to all builder units at the same time, and sent step
    // by step.
    bool in_rounds() const { return synchronised || order == Schedule::Order::file; }
    // Events that a builder unit has memory for. With policy wait, an event that waits for a source
    // to come back holds no credit, so that another can be gathered meanwhile.
    int slots() const { return policy == Policy::wait ? 2 * credits : credits; }
    // The number of a rank's readout unit among all readout units. Its fragments carry it.
    int source_number(int rank) const;
    EventGroup group(std::uint64_t number) const;
};

// Throws Error for settings that cannot be run.
Settings read_settings(const Options& options, int ranks);

}  // namespace assay::events
