// Merges the events of all threads of a process in time order. It holds one chunk per thread in
// memory.
#pragma once

#include <map>
#include <queue>
#include <vector>

#include "profile/trace/file.hpp"

namespace assay::heap {

class EventMerger {
public:
    explicit EventMerger(TraceReader& trace);

    // Calls visit(thread, event) for each event. Of two events with the same time, the one that
    // frees a block comes first.
    template <class Visit>
    void for_each(Visit visit) {
        std::priority_queue<QueueEntry, std::vector<QueueEntry>, std::greater<>> queue;
        for (std::size_t k = 0; k < threads_.size(); ++k)
            if (load_chunk(threads_[k])) queue.push({threads_[k].key(), k});
        while (!queue.empty()) {
            const std::size_t index = queue.top().thread;
            ThreadEvents& events = threads_[index];
            queue.pop();
            // Visit the events of this thread until another thread has an earlier event.
            const std::uint64_t limit = queue.empty() ? ~std::uint64_t{0} : queue.top().key;
            bool has_more = true;
            do {
                visit(events.thread, events.events[events.next_event++]);
                has_more = events.next_event < events.events.size() || load_chunk(events);
            } while (has_more && events.key() <= limit);
            if (has_more) queue.push({events.key(), index});
        }
    }

    std::uint64_t unreadable_chunks() const { return unreadable_chunks_; }

private:
    struct ThreadEvents {
        std::uint32_t thread = 0;  // serial
        std::vector<const ChunkRef*> chunks;
        std::size_t next_chunk = 0, next_event = 0;
        std::vector<Event> events;  // of the current chunk

        // Sorts by the time of the next event, frees before allocations.
        std::uint64_t key() const {
            const Kind kind = kind_of(events[next_event]);
            const bool is_free =
                kind == Kind::free || kind == Kind::realloc_from || kind == Kind::unmap;
            return events[next_event].time * 2 + (is_free ? 0 : 1);
        }
    };
    struct QueueEntry {  // a thread and the key of its next event
        std::uint64_t key;
        std::size_t thread;
        bool operator>(const QueueEntry& other) const { return key > other.key; }
    };

    bool load_chunk(ThreadEvents& events);

    TraceReader& trace_;
    std::vector<ThreadEvents> threads_;
    Bytes payload_;
    std::uint64_t unreadable_chunks_ = 0;
};

}  // namespace assay::heap
