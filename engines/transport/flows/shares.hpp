// The flows on their way, and the rate of each: weighted max-min fairness, as in SimGrid. All rates
// grow together, each in proportion to its weight, until a link is full; the flows of that link
// keep their rates, and the others grow on (progressive filling; Bertsekas and Gallager, Data
// Networks, 6.5.2).
//
// With up to 256 flows the rates are solved again after each start and end. With more they are
// solved again when one in 256 flows has started or ended, or after a 256th of the time that a
// message alone takes: a solution costs about 0.1 us for each flow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "transport/flows/network.hpp"

namespace assay::flows {

inline constexpr Nanoseconds never = INT64_MAX;

class Shares {
public:
    explicit Shares(const Network& network);

    // A flow of a message from one host to another starts.
    void start(std::uint32_t message, int from, int to, double bytes, Nanoseconds time);
    // When the next flow ends, or the rates are due to be solved again; `never` without flows.
    Nanoseconds next() const;
    // Appends the messages whose flows have ended by `time`, and solves the rates if that is due.
    // Of those that end together the last to start is the first, mostly as in SimGrid: the order
    // decides which of the senders goes on first, and so who waits for whom later.
    void advance(Nanoseconds time, std::vector<std::uint32_t>& ended);
    // B/s of the flow of a message; 0 before its first solution, and without one.
    double rate_of(std::uint32_t message) const;

private:
    struct Flow {
        std::span<const std::int32_t> route;
        double weight, remaining, rate;  // remaining: B at `since`
        Nanoseconds since;
        std::uint32_t message;
        bool solved;
    };
    struct Link {
        std::vector<std::uint32_t> flows;  // that cross it, in no order
        double weight = 0;                 // of these
        bool changed = false;              // since the last solution
    };
    struct Part {             // of a link, while the rates are solved
        double left, weight;  // of its rate, B/s; of its unsolved flows
        std::uint32_t count;  // of these
    };
    struct Candidate {  // a link, with the lowest level at which it can be full
        double level;
        std::uint32_t link;
    };
    bool solution_is_due(Nanoseconds time) const;
    void remove(std::uint32_t flow);
    void change(std::uint32_t link);
    void solve(Nanoseconds time);
    void list_candidates();
    void sink_first();
    void fill();
    void set_rate(Flow& flow, double rate, Nanoseconds time, Nanoseconds& end) const;

    const Network& network_;
    std::vector<Flow> flows_;           // some are free
    std::vector<std::uint32_t> free_;   // flows
    std::vector<std::uint32_t> order_;  // the flows on their way, as they started
    std::vector<Nanoseconds> ends_;     // of these, in the same order
    std::size_t changes_ = 0;           // starts and ends since the last solution
    Nanoseconds solve_by_ = never, longest_delay_ = 0;
    std::vector<Link> links_;
    std::vector<std::uint32_t> changed_;  // links
    std::vector<Part> parts_;             // by link
    std::vector<Candidate> candidates_;
    std::vector<double> rates_;  // by flow, while they are solved; negative: not yet
};

}  // namespace assay::flows
