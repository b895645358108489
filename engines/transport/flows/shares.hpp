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
        std::uint32_t message;
        int from, to;
        double weight, remaining, rate;  // remaining: B at `since`
        Nanoseconds since;
        bool solved;
    };
    struct Candidate {  // a link, with the lowest level at which it can be full
        double level;
        std::uint32_t link;
    };
    bool solution_is_due(Nanoseconds time) const;
    void solve(Nanoseconds time);
    void list_flows_of_links();
    void fill();
    void set_rate(Flow& flow, double rate, Nanoseconds time, Nanoseconds& end) const;

    const Network& network_;
    std::vector<Flow> flows_;
    std::vector<Nanoseconds> ends_;  // of the flows, in the same order
    std::size_t changes_ = 0;        // starts and ends since the last solution
    Nanoseconds solve_by_ = never, longest_delay_ = 0;
    // By link: what is left of its rate, the weights and the number of its unsolved flows; where
    // its flows begin in flows_of_links_, and how many it has.
    std::vector<double> left_, weights_;
    std::vector<std::uint32_t> counts_, first_, lengths_, flows_of_links_;
    std::vector<std::uint32_t> used_;  // links with flows
    std::vector<Candidate> candidates_;
    std::vector<double> rates_;  // of the flows, while they are solved
};

}  // namespace assay::flows
