// The settings of an event builder, from the command line.
#pragma once

#include <cstdint>

#include "core/clock.hpp"
#include "core/options.hpp"
#include "events/payload.hpp"
#include "events/schedule.hpp"
#include "events/units.hpp"

namespace assay::events {

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
    Schedule schedule;
    Format format;
    std::uint32_t events_per_message;

    // Rounds are for all builder units at once, and served step by step.
    bool in_rounds() const { return synchronised || schedule.order() == Schedule::Order::file; }
    // Events that a builder unit has memory for. With policy wait, those that wait for a source to
    // come back hold no credit: as many others are gathered meanwhile.
    int slots() const { return policy == Policy::wait ? 2 * credits : credits; }
    // The number of a readout unit among them, which its fragments carry.
    int source_number(int rank) const;
    EventGroup group(std::uint64_t number) const;
};

// Throws Error for what cannot be run.
Settings read_settings(const Options& options, int ranks, bool simulated);

}  // namespace assay::events
