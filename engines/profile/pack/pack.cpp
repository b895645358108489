#include "profile/pack/pack.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include <tsl/robin_map.h>

#include "core/error.hpp"
#include "profile/trace/file.hpp"
#include "profile/trace/hash.hpp"
#include "profile/trace/replay.hpp"

namespace assay::heap {
namespace {

constexpr int level = 9;
constexpr std::size_t chunk_events = 64 << 10;

class Packer {
public:
    Packer(TraceReader& trace, const std::string& path) : trace_(trace), writer_(path, level) {}

    void run() {
        for (const ChunkPlace& place : trace_.chunks()) copy_words(place);
        if (!python_.empty()) writer_.write({.kind = ChunkKind::python, .count = 1}, python_);
        // In the order of time: whose block an address is, hangs on who had it last.
        Replay replay(trace_);
        replay.for_each([this](std::uint32_t thread, const Event& event) { add(thread, event); });
        for (auto& [thread, lane] : lanes_) flush(thread, lane);
        if (!writer_.failed().empty())
            throw Error("cannot write the packed trace: " + writer_.failed());
    }

private:
    struct Lane {
        std::vector<Event> events;
        std::uint64_t blocks = 0;  // given so far
    };

    // All that is no event.
    void copy_words(const ChunkPlace& place) {
        if (place.head.kind == ChunkKind::events || !trace_.read(place, payload_)) return;
        if (place.head.kind != ChunkKind::raw) return writer_.write(place.head, payload_);
        const Bytes raw = payload_;
        read_texts(raw, [&](Kind kind, std::span<const std::uint8_t> text) {
            if (kind == Kind::python) {  // many, and short
                python_.insert(python_.end(), text.begin(), text.end());
                return;
            }
            const ChunkKind what = kind == Kind::modules ? ChunkKind::modules : ChunkKind::thread;
            writer_.write({.kind = what, .thread = place.head.thread, .count = 1}, text);
        });
    }

    void add(std::uint32_t thread, Event event) {
        Lane& lane = lanes_[thread];
        const Kind kind = kind_of(event);
        const std::uint64_t address = address_of(event);
        if (gives(kind, address, event.size)) {
            // One that is still there was freed unseen: that is said, since the name tells nobody.
            if (const auto stale = names_.find(address); stale != names_.end())
                lane.events.push_back(
                    {event.time,
                     stale->second | static_cast<std::uint64_t>(Kind::free) << kind_shift, 0, 0,
                     0});
            const std::uint64_t name = name_block(thread, lane.blocks++);
            names_[address] = name;
            rename(event, name);
        } else if (kind == Kind::free || kind == Kind::realloc_from) {
            if (const auto known = names_.find(address); known != names_.end()) {
                rename(event, known->second);
                if (kind == Kind::realloc_from) reallocated_[thread] = known->second;
                names_.erase(known);
            } else {
                reallocated_.erase(thread);
            }
        } else if (kind == Kind::realloc && event.size == not_reallocated) {
            if (const auto same = reallocated_.find(thread); same != reallocated_.end()) {
                names_[address] = same->second;
                rename(event, same->second);
            }
        }
        lane.events.push_back(event);
        if (lane.events.size() >= chunk_events) flush(thread, lane);
    }

    static void rename(Event& event, std::uint64_t name) {
        event.address = name | (event.address & ~address_mask);
    }

    void flush(std::uint32_t thread, Lane& lane) {
        std::vector<Event>& events = lane.events;
        if (events.empty()) return;
        payload_.clear();
        encode_events(events, thread, events.front().time, payload_);
        writer_.write({.kind = ChunkKind::events,
                       .thread = thread,
                       .count = static_cast<std::uint32_t>(events.size()),
                       .first = events.front().time,
                       .last = events.back().time},
                      payload_);
        events.clear();
    }

    TraceReader& trace_;
    TraceWriter writer_;
    Bytes payload_, python_;
    std::map<std::uint32_t, Lane> lanes_;                            // by thread
    tsl::robin_map<std::uint64_t, std::uint64_t, BlockHash> names_;  // of live blocks
    std::map<std::uint32_t, std::uint64_t>
        reallocated_;  // the block that a thread is about to reallocate
};

}  // namespace

void pack(const std::string& path) {
    const std::string part = path + ".part";
    unlink(part.c_str());
    try {
        TraceReader trace(path);
        Packer(trace, part).run();
    } catch (...) {
        unlink(part.c_str());
        throw;
    }
    if (std::rename(part.c_str(), path.c_str()) != 0)
        throw Error("cannot replace " + path + ": " + std::strerror(errno));
}

}  // namespace assay::heap
