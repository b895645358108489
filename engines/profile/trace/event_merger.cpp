// Groups the event chunks of a trace by thread and loads them one at a time.
#include "profile/trace/event_merger.hpp"

namespace assay::heap {

EventMerger::EventMerger(TraceReader& trace) : trace_(trace) {
    std::map<std::uint32_t, std::size_t> index_of;
    for (const ChunkRef& chunk : trace.chunks()) {
        if (chunk.header.kind != ChunkKind::events && chunk.header.kind != ChunkKind::raw) continue;
        const auto [entry, is_new] = index_of.try_emplace(chunk.header.thread, threads_.size());
        if (is_new) threads_.emplace_back().thread = chunk.header.thread;
        threads_[entry->second].chunks.push_back(&chunk);
    }
}

bool EventMerger::load_chunk(ThreadEvents& events) {
    while (events.next_chunk < events.chunks.size()) {
        const ChunkRef& chunk = *events.chunks[events.next_chunk++];
        events.next_event = 0;
        if (!read_events(trace_, chunk, payload_, events.events)) ++unreadable_chunks_;
        else if (!events.events.empty()) return true;
    }
    return false;
}

}  // namespace assay::heap
