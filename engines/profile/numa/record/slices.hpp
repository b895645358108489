// Counts of near and far accesses over time, in equal slices: at most `most` of them, which become
// twice as long whenever more time has passed than they cover.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::numa {

class Slices {
public:
    struct Slice {
        std::uint64_t local = 0, remote = 0, unknown = 0;
    };
    static constexpr std::size_t most = 256;

    explicit Slices(std::uint64_t begin_ns) : begin_ns_(begin_ns) {}
    // Of a thread and a page on these nodes, -1 for an unknown one. What came before the begin is
    // in the first slice.
    void add(std::uint64_t ns, int thread_node, int page_node);
    std::uint64_t width_ns() const { return width_ns_; }
    const std::vector<Slice>& all() const { return slices_; }

private:
    std::uint64_t begin_ns_, width_ns_ = 1'000'000;
    std::vector<Slice> slices_;
};

}  // namespace assay::numa
