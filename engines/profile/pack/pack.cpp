#include "profile/pack/pack.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/error.hpp"
#include "profile/trace/file.hpp"

namespace assay::heap {
namespace {

constexpr int level = 3;
constexpr std::size_t chunk_events = 64 << 10;

class Packer {
public:
    Packer(TraceReader& trace, const std::string& path) : trace_(trace), writer_(path, level) {}

    void run() {
        for (const ChunkPlace& place : trace_.chunks()) {
            if (place.head.kind == ChunkKind::raw || place.head.kind == ChunkKind::events) add(place);
            else if (trace_.read(place, payload_)) writer_.write(place.head, payload_);
        }
        for (auto& [thread, events] : pending_) flush(thread, events);
        if (!writer_.failed().empty()) throw Error("cannot write the packed trace: " + writer_.failed());
    }

private:
    void add(const ChunkPlace& place) {
        if (!read_events(trace_, place, payload_, events_)) return;
        if (place.head.kind == ChunkKind::raw) read_texts(payload_, [&](Kind kind, std::span<const std::uint8_t> text) {
            const ChunkKind what = kind == Kind::modules ? ChunkKind::modules : ChunkKind::thread;
            writer_.write({.kind = what, .thread = place.head.thread, .count = 1}, text);
        });
        std::vector<Event>& pending = pending_[place.head.thread];
        pending.insert(pending.end(), events_.begin(), events_.end());
        if (pending.size() >= chunk_events) flush(place.head.thread, pending);
    }

    void flush(std::uint32_t thread, std::vector<Event>& events) {
        if (events.empty()) return;
        payload_.clear();
        encode_events(events, events.front().time, payload_);
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
    Bytes payload_;
    std::vector<Event> events_;
    std::map<std::uint32_t, std::vector<Event>> pending_;  // by thread
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
    if (std::rename(part.c_str(), path.c_str()) != 0) throw Error("cannot replace " + path + ": " + std::strerror(errno));
}

}  // namespace assay::heap
