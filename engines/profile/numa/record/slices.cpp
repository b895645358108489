// Adds accesses to the time slices, which widen as time passes.
#include "profile/numa/record/slices.hpp"

namespace assay::numa {

void Slices::add(std::uint64_t ns, int thread_node, int page_node) {
    const std::uint64_t elapsed_ns = ns > begin_ns_ ? ns - begin_ns_ : 0;
    while (elapsed_ns / width_ns_ >= max_slices) {
        width_ns_ *= 2;
        std::vector<Slice> wider((slices_.size() + 1) / 2);
        for (std::size_t k = 0; k < slices_.size(); ++k) {
            wider[k / 2].local += slices_[k].local;
            wider[k / 2].remote += slices_[k].remote;
            wider[k / 2].unknown += slices_[k].unknown;
        }
        slices_ = std::move(wider);
    }
    const auto index = static_cast<std::size_t>(elapsed_ns / width_ns_);
    if (index >= slices_.size()) slices_.resize(index + 1);
    Slice& slice = slices_[index];
    if (thread_node < 0 || page_node < 0) ++slice.unknown;
    else if (thread_node == page_node) ++slice.local;
    else ++slice.remote;
}

}  // namespace assay::numa
