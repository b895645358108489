// Counts sampled memory accesses and writes the counts into a recording.
#include "profile/numa/record/accesses.hpp"

#include <algorithm>

namespace assay::numa {

std::vector<std::uint64_t> Accesses::pending_pages() const {
    std::vector<std::uint64_t> pages;
    pages.reserve(pending_.size());
    for (const SampledAccess& access : pending_)
        if (access.object != no_object) pages.push_back(access.page);
    std::ranges::sort(pages);
    const auto duplicates = std::ranges::unique(pages);
    pages.erase(duplicates.begin(), duplicates.end());
    return pages;
}

void Accesses::count_pending(const std::function<int(std::uint64_t)>& node_of, Slices& slices) {
    for (const SampledAccess& access : pending_) {
        const bool has_object = access.object != no_object;
        const int node = has_object ? node_of(access.page) : -1;
        Count& count =
            access_counts_[{access.object, access.stack, access.thread, access.thread_node, node}];
        ++(access.source.operation == Operation::store ? count.stores : count.loads);
        if (has_object)
            ++part_counts_[{access.object, access.part, access.thread, access.thread_node, node}];
        ++level_counts_[static_cast<std::size_t>(access.source.level)];
        slices.add(access.ns, access.thread_node, node);
    }
    pending_.clear();
}

void Accesses::write(Lines& lines) const {
    for (const auto& [key, count] : access_counts_) {
        const auto& [object, stack, thread, thread_node, node] = key;
        lines.write("access", object, stack + 1, thread, thread_node, node, count.loads,
                    count.stores);
    }
    for (const auto& [key, count] : part_counts_) {
        const auto& [object, part, thread, thread_node, node] = key;
        lines.write("part", object, part, thread, thread_node, node, count);
    }
}

}  // namespace assay::numa
