// The records of an event builder. The records of a slice of time are written as soon as it has
// ended, so that a run that ends early keeps them.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
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

    void write_slice(const Slice& slice);
    // No events are assigned from this time on: what is built then is a rest, and not the rate.
    void end_rates(Nanoseconds since_start) { rates_end_ = since_start; }
    void add_decision(Nanoseconds spent, Nanoseconds events);
    void write_damage(int builder, const Damage& damage);
    void add_lost(int rank) { lost_.push_back(rank); }
    void add_returned(int rank) { returned_.push_back(rank); }
    void write_resume(int rank, double seconds);
    void write_no_resume(int rank);
    // `seconds`: from the loss of the rank until it took part again.
    void write_return(int rank, double seconds);
    void write_replan(double seconds, std::size_t steps);
    // B/s of the last slice; 0 if none has ended.
    double last_rate() const { return last_rate_; }
    // The builder unit that received least from others in the last slice.
    struct Slowest {
        int rank = 0;
        double rate = 0;  // B/s
    };
    const Slowest& last_slowest() const { return last_slowest_; }
    std::size_t lost() const { return lost_.size(); }
    std::size_t returned() const { return returned_.size(); }
    // The totals. Throws Error if the ledger does not balance.
    void write(const EventManager& manager, const Slices& slices);

private:
    Json params() const;
    void emit_single(std::string_view metric, double value, const Subject& subject = {},
                     const Json& extra = Json::object());
    void write_rates(const Slices& slices);
    void write_ranks(const EventManager& manager, const Slices& slices);
    void check_ledger(const EventManager& manager, const Slices& slices) const;

    const Settings& settings_;
    Sink& sink_;
    std::vector<double> rates_, network_rates_;  // B/s by slice; bounded, see write_slice()
    std::uint64_t slices_ = 0, keep_every_ = 1;
    double first_rate_ = 0, first_network_rate_ = 0;  // of a run without a slice that counts
    Nanoseconds rates_end_ = std::numeric_limits<Nanoseconds>::max();
    Histogram decisions_;
    double last_rate_ = 0;
    Slowest last_slowest_;
    std::size_t corruption_records_ = 0;
    std::vector<int> lost_, returned_;
};

}  // namespace assay::events
