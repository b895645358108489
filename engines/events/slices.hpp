// The reports of all ranks, combined by slices of time at the manager.
//
// A slice is complete when every member has reported it; then flush() visits and deletes it. A
// slice that some rank did not report (it was lost, or came later) is visited incomplete when two
// newer slices have begun. Memory does not grow with time.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "core/statistics.hpp"
#include "events/messages.hpp"

namespace assay::events {

struct Slice {
    std::uint64_t number = 0;
    Nanoseconds span = 0;                            // of the rank that took longest
    std::uint64_t received = 0, received_local = 0;  // B, all ranks
    std::map<int, std::uint64_t> received_by{};      // from others, of ranks that have ended it
    Histogram latency{};
};

// Totals of one rank over the whole run.
struct RankTotals {
    std::uint64_t received = 0, received_local = 0, sent = 0, assigned_events = 0;
    std::uint64_t packets_sent = 0, packets_resent = 0;
    Nanoseconds time = 0, waited_credits = 0, waited_filter = 0;
};

class Slices {
public:
    explicit Slices(int ranks) : totals(static_cast<std::size_t>(ranks)) {}

    void add(int rank, const Report& report);
    // Visits and deletes the slices that all `members` have reported. With `all`, every slice.
    void flush(const std::vector<int>& members, bool all,
               const std::function<void(const Slice&)>& visit);
    std::uint64_t newest() const { return newest_; }

    std::vector<RankTotals> totals;  // by rank
    Histogram latency;

private:
    std::map<std::uint64_t, Slice> open_;
    std::uint64_t newest_ = 0, flushed_ = 0;
};

}  // namespace assay::events
