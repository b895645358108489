// The events of all threads of a process in the order of time, a chunk of each in memory.
#pragma once

#include <map>
#include <queue>
#include <vector>

#include "profile/trace/file.hpp"

namespace assay::heap {

class Replay {
public:
    explicit Replay(TraceReader& trace);

    // visit(thread, event) for each. Of two at the same tick, that which gives a block up comes
    // first.
    template <class Visit>
    void for_each(Visit visit) {
        std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
        for (std::size_t k = 0; k < lanes_.size(); ++k)
            if (fill(lanes_[k])) turns.push({lanes_[k].key(), k});
        while (!turns.empty()) {
            Lane& lane = lanes_[turns.top().lane];
            const std::size_t index = turns.top().lane;
            turns.pop();
            // As long as no other thread is earlier.
            const std::uint64_t until = turns.empty() ? ~std::uint64_t{0} : turns.top().key;
            bool more = true;
            do {
                visit(lane.thread, lane.events[lane.at++]);
                more = lane.at < lane.events.size() || fill(lane);
            } while (more && lane.key() <= until);
            if (more) turns.push({lane.key(), index});
        }
    }

    std::uint64_t unreadable() const { return unreadable_; }  // chunks

private:
    struct Lane {
        std::uint32_t thread = 0;
        std::vector<const ChunkPlace*> chunks;
        std::size_t next = 0, at = 0;
        std::vector<Event> events;
        std::uint64_t key() const {
            const Kind kind = kind_of(events[at]);
            const bool gives_up =
                kind == Kind::free || kind == Kind::realloc_from || kind == Kind::unmap;
            return events[at].time * 2 + (gives_up ? 0 : 1);
        }
    };
    struct Turn {
        std::uint64_t key;
        std::size_t lane;
        bool operator>(const Turn& other) const { return key > other.key; }
    };

    bool fill(Lane& lane);

    TraceReader& trace_;
    std::vector<Lane> lanes_;
    Bytes payload_;
    std::uint64_t unreadable_ = 0;
};

}  // namespace assay::heap
