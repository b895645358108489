// The records of an event builder. Those of a slice of time are written as soon as it has ended, so
// that a run that is cut off keeps what it measured.
#pragma once

#include <string>
#include <vector>

#include "core/record.hpp"
#include "events/manager.hpp"
#include "events/settings.hpp"
#include "events/slices.hpp"

namespace assay::events {

class Results {
public:
    Results(const Settings& settings, Sink& sink) : settings_(settings), sink_(sink) {}

    std::vector<std::string> labels;  // by rank; empty before the start
    std::string label(int rank) const;

    void slice(const Slice& slice);
    void decision(Nanoseconds spent, Nanoseconds events);
    void damage(int builder, const Damage& damage);
    void lost(int rank) { lost_.push_back(rank); }
    void returned(int rank) { returned_.push_back(rank); }
    void resumed(int rank, double seconds);
    void not_resumed(int rank);
    // B/s of the last slice; 0 if none has ended.
    double last_rate() const { return last_rate_; }
    // The totals. Throws Error if the ledger does not balance.
    void write(const EventManager& manager, const Slices& slices);

private:
    Json params() const;
    void emit_single(std::string_view metric, double value, const Subject& subject = {},
                     const Json& extra = Json::object());
    void write_rates(const Slices& slices);
    void write_ranks(const EventManager& manager, const Slices& slices);
    void check(const EventManager& manager, const Slices& slices) const;

    const Settings& settings_;
    Sink& sink_;
    std::vector<double> rates_, network_rates_;  // B/s by slice; bounded, see slice()
    std::uint64_t slices_ = 0, keep_every_ = 1;
    double first_rate_ = 0, first_network_rate_ = 0;  // of a part of a slice, if there is no whole
    Histogram decisions_;
    double last_rate_ = 0;
    std::size_t located_ = 0;
    std::vector<int> lost_, returned_;
};

}  // namespace assay::events
