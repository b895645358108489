// Connects the figures that a profiler counts for each stack with the columns of a profile's
// tables.
#pragma once

#include <cstdint>

namespace assay::profile {

// How the figures of several stacks are combined. The profiler itself tracks peaks over time.
enum class Fold { sum, least, most, peak };

// A member of `Figures`, the struct of a stack's figures. `is_time`: the value is in ticks and is
// written in seconds.
template <typename Figures>
struct FigureColumn {
    const char* name;
    std::uint64_t Figures::* value;
    Fold fold;
    bool is_time;
};

// The value of an unknown minimum (Fold::least).
inline constexpr std::uint64_t unknown_least = ~std::uint64_t{0};

}  // namespace assay::profile
