#include "profile/numa/record/accesses.hpp"

#include <algorithm>

namespace assay::numa {

std::vector<std::uint64_t> Accesses::waiting_pages() const {
    std::vector<std::uint64_t> pages;
    pages.reserve(waiting_.size());
    for (const SampledAccess& access : waiting_)
        if (access.object != no_object) pages.push_back(access.page);
    std::ranges::sort(pages);
    const auto same = std::ranges::unique(pages);
    pages.erase(same.begin(), same.end());
    return pages;
}

void Accesses::count(const std::function<int(std::uint64_t)>& node_of, Slices& slices) {
    for (const SampledAccess& access : waiting_) {
        const bool has_object = access.object != no_object;
        const int node = has_object ? node_of(access.page) : -1;
        Count& counted =
            counts_[{access.object, access.stack, access.thread, access.thread_node, node}];
        ++(access.source.operation == Operation::store ? counted.stores : counted.loads);
        if (has_object)
            ++parts_[{access.object, access.part, access.thread, access.thread_node, node}];
        ++served_[static_cast<std::size_t>(access.source.server)];
        slices.add(access.ns, access.thread_node, node);
    }
    waiting_.clear();
}

void Accesses::write(Lines& lines) const {
    for (const auto& [key, counted] : counts_) {
        const auto& [object, stack, thread, thread_node, node] = key;
        lines.write("access", object, stack + 1, thread, thread_node, node, counted.loads,
                    counted.stores);
    }
    for (const auto& [key, count] : parts_) {
        const auto& [object, part, thread, thread_node, node] = key;
        lines.write("part", object, part, thread, thread_node, node, count);
    }
}

}  // namespace assay::numa
