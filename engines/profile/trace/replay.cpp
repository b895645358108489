#include "profile/trace/replay.hpp"

namespace assay::heap {

Replay::Replay(TraceReader& trace) : trace_(trace) {
    std::map<std::uint32_t, std::size_t> lane_of;
    for (const ChunkPlace& place : trace.chunks()) {
        if (place.head.kind != ChunkKind::events && place.head.kind != ChunkKind::raw) continue;
        const auto [found, is_new] = lane_of.try_emplace(place.head.thread, lanes_.size());
        if (is_new) lanes_.emplace_back().thread = place.head.thread;
        lanes_[found->second].chunks.push_back(&place);
    }
}

bool Replay::fill(Lane& lane) {
    while (lane.next < lane.chunks.size()) {
        const ChunkPlace& place = *lane.chunks[lane.next++];
        lane.at = 0;
        if (!read_events(trace_, place, payload_, lane.events)) ++unreadable_;
        else if (!lane.events.empty()) return true;
    }
    return false;
}

}  // namespace assay::heap
