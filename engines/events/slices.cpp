// Combines the reports of all ranks by slices of time.
#include "events/slices.hpp"

#include <algorithm>

namespace assay::events {

void Slices::add(int rank, const Report& report) {
    RankTotals& total = totals[static_cast<std::size_t>(rank)];
    std::vector<std::uint64_t> counts(Histogram::buckets);
    for (const Report::Count& count : report.latency)
        if (count.bucket < counts.size()) counts[count.bucket] += count.count;
    latency.merge(counts);
    const bool late = report.slice < flushed_;  // counts in the totals only
    Slice* slice = nullptr;
    if (!late) {
        slice = &open_[report.slice];
        slice->number = report.slice;
        slice->latency.merge(counts);
        newest_ = std::max(newest_, report.slice);
    }
    if (report.more) return;
    total.received += report.received;
    total.received_local += report.received_local;
    total.sent += report.sent;
    total.assigned_events = report.assigned_events;
    total.packets_sent = report.packets_sent;
    total.packets_resent = report.packets_resent;
    total.time += report.span;
    total.waited_credits += report.waited_credits;
    total.waited_filter += report.waited_filter;
    if (!slice) return;
    slice->span = std::max(slice->span, report.span);
    slice->received += report.received;
    slice->received_local += report.received_local;
    slice->received_by[rank] += report.received;
}

void Slices::flush(const std::vector<int>& members, bool all,
                   const std::function<void(const Slice&)>& visit) {
    while (!open_.empty()) {
        const auto first = open_.begin();
        const bool complete = std::ranges::all_of(
            members, [&](int rank) { return first->second.received_by.contains(rank); });
        if (!all && !complete && newest_ < first->first + 2) return;
        visit(first->second);
        flushed_ = first->first + 1;
        open_.erase(first);
    }
}

}  // namespace assay::events
