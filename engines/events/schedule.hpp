// The order in which a readout unit serves the builder units, and a builder unit asks the readout
// units, in one round: an event for each builder unit.
//
//   shift   barrel shift: in step k the i-th readout unit sends to the (i + k)-th builder unit, so
//           that no step has two sources for one builder unit
//   random  every unit in an order of its own, seeded
//   all     without an order: everything at once
//   file    the steps of a file, such as `assay fabric schedule` plans; units that are not members
//           are left out, which keeps its steps free of conflicts
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::events {

inline constexpr int no_rank = -1;

class Schedule {
public:
    enum class Order : std::uint8_t { shift, random, all, file };

    // Throws Error for an unknown name.
    static Order order_of(std::string_view name);
    Schedule(Order order, std::uint64_t seed) : order_(order), seed_(seed) {}
    // `text`: a step a line, the destination of rank 0, 1, ..., -1 for none; '#' begins a comment.
    // Throws Error, with the line, unless each rank sends to each other exactly once and no step
    // has two sources for a destination.
    static Schedule listed(std::string_view text, const std::string& file, int ranks);

    Order order() const { return order_; }
    // The destination of `readout` in each step of `round`; `no_rank` in idle steps. All readout
    // units have equally many steps.
    std::vector<int> destinations(int readout, const std::vector<int>& readouts,
                                  const std::vector<int>& builders, std::uint64_t round) const;
    // The readout units in the order in which `builder` asks them.
    std::vector<int> sources(int builder, const std::vector<int>& readouts,
                             const std::vector<int>& builders, std::uint64_t round) const;

private:
    Order order_;
    std::uint64_t seed_ = 0;
    std::vector<std::vector<int>> steps_;  // of a file: [step][rank]
};

}  // namespace assay::events
