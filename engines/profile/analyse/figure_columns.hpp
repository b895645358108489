// Connects the figures that a profiler counts for each stack with the columns of a profile's
// tables.
#pragma once

#include <cstdint>

namespace assay::profile {

// How the figures of several stacks become one. A peak is followed over time by the profiler.
enum class Fold { sum, least, most, peak };

// One member of `Figures`, the struct of a stack's figures. `is_time`: in ticks, written in
// seconds.
template <typename Figures>
struct FigureColumn {
    const char* name;
    std::uint64_t Figures::* value;
    Fold fold;
    bool is_time;
};

// The figure of a least that nothing is known of.
inline constexpr std::uint64_t unknown_least = ~std::uint64_t{0};

}  // namespace assay::profile
