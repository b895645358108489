// Counts local and remote accesses over time, in slices of equal width. When the time exceeds
// `max_slices` slices, pairs of slices merge and the width doubles.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::numa {

class Slices {
public:
    struct Slice {
        std::uint64_t local = 0, remote = 0, unknown = 0;
    };
    static constexpr std::size_t max_slices = 256;

    explicit Slices(std::uint64_t begin_ns) : begin_ns_(begin_ns) {}
    // Counts an access of a thread to a page; a node of -1 is unknown. Accesses before `begin_ns`
    // count in the first slice.
    void add(std::uint64_t ns, int thread_node, int page_node);
    std::uint64_t width_ns() const { return width_ns_; }
    const std::vector<Slice>& all() const { return slices_; }

private:
    std::uint64_t begin_ns_, width_ns_ = 1'000'000;
    std::vector<Slice> slices_;
};

}  // namespace assay::numa
