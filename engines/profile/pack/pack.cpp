// Rewrites a trace: replaces block addresses by ids and encodes the events of each thread as
// columns.
#include "profile/pack/pack.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include <tsl/robin_map.h>

#include "core/error.hpp"
#include "profile/trace/event_merger.hpp"
#include "profile/trace/file.hpp"
#include "profile/trace/hash.hpp"

namespace assay::heap {
namespace {

constexpr int compression_level = 9;
constexpr std::size_t chunk_events = 64 << 10;

class Packer {
public:
    Packer(TraceReader& trace, const std::string& path)
        : trace_(trace), writer_(path, compression_level) {}

    void run() {
        for (const ChunkRef& chunk : trace_.chunks()) copy_chunk(chunk);
        if (!python_.empty()) writer_.write({.kind = ChunkKind::python, .count = 1}, python_);
        if (mappings_.ends_with("\n\n"))
            writer_.write(
                {.kind = ChunkKind::mappings, .count = 1},
                {reinterpret_cast<const std::uint8_t*>(mappings_.data()), mappings_.size()});
        // Events are added in time order, since the last allocation at an address determines the
        // block.
        EventMerger merger(trace_);
        merger.for_each([this](std::uint32_t thread, const Event& event) { add(thread, event); });
        for (auto& [thread, output] : threads_) flush(thread, output);
        if (!writer_.error().empty())
            throw Error("cannot write the packed trace: " + writer_.error());
    }

private:
    struct ThreadOutput {
        std::vector<Event> events;
        std::uint64_t block_count = 0;  // allocated so far
    };

    // Copies everything but events.
    void copy_chunk(const ChunkRef& chunk) {
        if (chunk.header.kind == ChunkKind::events || !trace_.read(chunk, payload_)) return;
        if (chunk.header.kind != ChunkKind::raw) return writer_.write(chunk.header, payload_);
        const Bytes raw = payload_;
        read_texts(raw, [&](Kind kind, std::span<const std::uint8_t> text) {
            if (kind == Kind::python) {  // many short texts, which are combined in one chunk
                python_.insert(python_.end(), text.begin(), text.end());
                return;
            }
            if (kind == Kind::mappings) {
                mappings_.append(text.begin(), text.end());
                return;
            }
            const ChunkKind text_kind =
                kind == Kind::modules ? ChunkKind::modules : ChunkKind::thread;
            writer_.write({.kind = text_kind, .thread = chunk.header.thread, .count = 1}, text);
        });
    }

    void add(std::uint32_t thread, Event event) {
        ThreadOutput& output = threads_[thread];
        const Kind kind = kind_of(event);
        const std::uint64_t address = address_of(event);
        if (is_allocation(kind, address, event.size)) {
            // A live block at this address was freed without an event. The free is added, since a
            // reader cannot infer it from ids.
            if (const auto entry = block_ids_.find(address); entry != block_ids_.end())
                output.events.push_back(
                    {event.time,
                     entry->second | static_cast<std::uint64_t>(Kind::free) << kind_shift, 0, 0,
                     0});
            const std::uint64_t id = block_id(thread, output.block_count++);
            block_ids_[address] = id;
            set_address(event, id);
        } else if (kind == Kind::free || kind == Kind::realloc_from) {
            if (const auto entry = block_ids_.find(address); entry != block_ids_.end()) {
                set_address(event, entry->second);
                if (kind == Kind::realloc_from) reallocating_[thread] = entry->second;
                block_ids_.erase(entry);
            } else {
                reallocating_.erase(thread);
            }
        } else if (kind == Kind::realloc && event.size == not_reallocated) {
            if (const auto entry = reallocating_.find(thread); entry != reallocating_.end()) {
                block_ids_[address] = entry->second;
                set_address(event, entry->second);
            }
        }
        output.events.push_back(event);
        if (output.events.size() >= chunk_events) flush(thread, output);
    }

    static void set_address(Event& event, std::uint64_t id) {
        event.address = id | (event.address & ~address_mask);
    }

    void flush(std::uint32_t thread, ThreadOutput& output) {
        std::vector<Event>& events = output.events;
        if (events.empty()) return;
        payload_.clear();
        encode_columns(events, thread, events.front().time, payload_);
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
    std::string mappings_;
    std::map<std::uint32_t, ThreadOutput> threads_;
    tsl::robin_map<std::uint64_t, std::uint64_t, BlockHash> block_ids_;  // live blocks by address
    // The block that each thread is reallocating.
    std::map<std::uint32_t, std::uint64_t> reallocating_;
};

}  // namespace

void pack(const std::string& path) {
    const std::string temporary_path = path + ".part";
    unlink(temporary_path.c_str());
    try {
        TraceReader trace(path);
        Packer(trace, temporary_path).run();
    } catch (...) {
        unlink(temporary_path.c_str());
        throw;
    }
    if (std::rename(temporary_path.c_str(), path.c_str()) != 0)
        throw Error("cannot replace " + path + ": " + std::strerror(errno));
}

}  // namespace assay::heap
