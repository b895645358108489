// node.gpu_copy: copies between this host and its NVIDIA GPUs.
#pragma once

#include <array>

#include "core/realtime.hpp"
#include "core/registry.hpp"

namespace assay::node {

namespace detail {
std::optional<std::string> no_gpu_driver();
void run_gpu_copy(const Options&, Bench&);

// The default of 8 x 64 MiB, each to its own buffer, is long enough that the start of a copy and
// the clock resolution do not matter, and lets every copied byte be compared.
inline constexpr std::array gpu_copy_parameters = {
    Parameter{"size", Kind::integer, "B", "67108864",
              "bytes of each copy (less if memory is short)", 4096, 0x1p40},
    Parameter{"copies", Kind::integer, "", "8", "copies in a row, timed together", 1, 1024},
    Parameter{"repeats", Kind::integer, "", "9", "repetitions; the median is reported", 3, 1e6},
    Parameter{"timeout", Kind::real, "s", "30", "longest wait for a GPU", 0.1, 3600},
    realtime_parameter,
};
inline constexpr std::array gpu_copy_metrics = {
    Metric{"bandwidth", "B/s", Better::higher,
           "of one GPU: to it (h2d), from it (d2h), or the sum of both at once (both); alone "
           "(gpus: one), or while all GPUs copy (all)"},
    Metric{"total", "B/s", Better::higher,
           "of all GPUs at once: all bytes over the time from the first start to the last end"},
    Metric{"corrupted", "1", Better::lower, "copies that did not arrive as sent"},
    Metric{"link", "B/s", Better::higher,
           "one-way capacity of a GPU's PCIe link, at its speed and width during a copy"},
};
}  // namespace detail

inline constexpr Measurement gpu_copy{
    "node.gpu_copy",
    Scope::node,
    "Copies between host and NVIDIA GPUs: each alone, all at once, both ways at once.",
    detail::gpu_copy_parameters,
    detail::gpu_copy_metrics,
    detail::no_gpu_driver,
    detail::run_gpu_copy};

}  // namespace assay::node
