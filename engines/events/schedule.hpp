// The order in which a readout unit sends to the builder units (push), or a builder unit requests
// from the readout units (pull), in one round. A round has an event for each builder unit.
//
//   shift   barrel shift: in step k the i-th readout unit sends to the (i + k)-th builder unit, so
//           that no step has two sources for one builder unit
//   random  every unit in a random order of its own, seeded
//   all     no order: all transfers at once
//   file    the steps of a plan, from a file as `assay fabric schedule` writes it or, after ranks
//           were lost, from the launcher; units that are not members are left out, which keeps the
//           steps free of conflicts
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::events {

inline constexpr int no_rank = -1;

// Whom is sent to and whom is received from, no_rank for nobody: by one rank in each step, or in
// one step by each rank.
struct Steps {
    std::vector<int> to, from;
};

// An exchange in steps, in which each rank sends to each other rank exactly once, and no step has
// two sources for a destination.
class Plan {
public:
    Plan() = default;
    // The text of a file. Each line is a step: the destinations of rank 0, 1, ..., no_rank for
    // none; '#' begins a comment. Throws Error with the line number.
    static Plan from_text(std::string_view text, const std::string& file, int ranks);
    // steps[step][rank] are the destinations. Throws Error.
    static Plan from_steps(std::vector<std::vector<int>> steps, const std::string& source,
                           int ranks);

    std::size_t size() const { return steps_.size(); }
    Steps of(int rank) const;

private:
    void add(std::vector<int> to);

    std::vector<Steps> steps_;  // each of all ranks
};

class Schedule {
public:
    enum class Order : std::uint8_t { shift, random, all, file };

    // Throws Error for an unknown name.
    static Order parse_order(std::string_view name);
    Schedule(Order order, std::uint64_t seed, Steps steps = {})
        : order_(order), seed_(seed), steps_(std::move(steps)) {}

    Order order() const { return order_; }
    // From the next call on, the steps of the own rank.
    void follow(Steps steps) { steps_ = std::move(steps); }
    // The destination of `readout` in each step of `round`; `no_rank` in idle steps. All readout
    // units have equally many steps. A plan knows the own rank alone.
    std::vector<int> destinations(int readout, const std::vector<int>& readouts,
                                  const std::vector<int>& builders, std::uint64_t round) const;
    // The readout units in the order in which `builder` asks them.
    std::vector<int> sources(int builder, const std::vector<int>& readouts,
                             const std::vector<int>& builders, std::uint64_t round) const;

private:
    Order order_;
    std::uint64_t seed_ = 0;
    Steps steps_;  // of the own rank, if the order is a plan's
};

}  // namespace assay::events
