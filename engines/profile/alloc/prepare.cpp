// The trace is read twice: first to learn which blocks go from one thread to another, then to
// write.
#include "profile/alloc/prepare.hpp"

#include <tsl/robin_map.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "profile/trace/event_merger.hpp"
#include "profile/trace/hash.hpp"

namespace assay::alloc {
namespace {

using heap::Event;

constexpr std::uint64_t epochs_wanted = 200;

struct Block {
    std::uint64_t serial = 0;  // of all blocks, in order
    std::uint64_t size = 0;
    std::uint32_t thread = 0;
    std::uint32_t slot = no_slot;
};

// Walks the events as blocks that come and go. A reallocation is one step, when it has succeeded.
//     visitor.give(thread, Do, Block&)                 visitor.move(thread, const Block* from,
//                                                      Block* to)
//     visitor.take(thread, const Block&)               visitor.event()
template <class Visitor>
class Walk {
public:
    explicit Walk(Visitor& visitor) : visitor_(visitor) {}

    std::uint64_t peak = 0, live = 0, unknown = 0;
    std::uint64_t peak_at = 0;  // after so many events

    void operator()(std::uint32_t thread, const Event& event) {
        const heap::Kind kind = heap::kind_of(event);
        const std::uint64_t address = heap::address_of(event);
        switch (kind) {
            case heap::Kind::malloc:
            case heap::Kind::memalign: give(thread, Do::malloc, address, event.size); break;
            case heap::Kind::calloc: give(thread, Do::calloc, address, event.size); break;
            case heap::Kind::free:
                if (const auto block = take(address)) visitor_.take(thread, *block);
                else ++unknown;
                break;
            case heap::Kind::realloc_from: moving_[thread] = take(address); break;
            case heap::Kind::realloc: move(thread, address, event.size); break;
            default: break;
        }
        ++events_;
        visitor_.event();
    }

private:
    void give(std::uint32_t thread, Do how, std::uint64_t address, std::uint64_t size) {
        drop_stale(thread, address);
        Block block{serial_++, size, thread};
        visitor_.give(thread, how, block);
        put(address, block);
    }

    void move(std::uint32_t thread, std::uint64_t address, std::uint64_t size) {
        const std::optional<Block> from = std::exchange(moving_[thread], std::nullopt);
        if (size == heap::not_reallocated) {
            if (from) put(address, *from);
            return;
        }
        if (address == 0) {  // realloc(block, 0), which frees
            if (from) visitor_.move(thread, &*from, nullptr);
            return;
        }
        drop_stale(thread, address);
        Block to{serial_++, size, thread};
        visitor_.move(thread, from ? &*from : nullptr, &to);
        put(address, to);
    }

    // One that is still there was given up unseen.
    void drop_stale(std::uint32_t thread, std::uint64_t address) {
        if (const auto stale = take(address)) visitor_.take(thread, *stale);
    }
    void put(std::uint64_t address, const Block& block) {
        blocks_.insert({address, block});
        live += block.size;
        if (live <= peak) return;
        peak = live;
        peak_at = events_ + 1;
    }
    std::optional<Block> take(std::uint64_t address) {
        const auto found = blocks_.find(address);
        if (found == blocks_.end()) return std::nullopt;
        const Block block = found->second;
        blocks_.erase(found);
        live -= block.size;
        return block;
    }

    Visitor& visitor_;
    tsl::robin_map<std::uint64_t, Block, heap::BlockHash> blocks_;
    std::map<std::uint32_t, std::optional<Block>> moving_;
    std::uint64_t serial_ = 0, events_ = 0;
};

// First reading: which blocks change hands, and which threads there are until when.
struct Survey {
    std::vector<bool> foreign;                          // by serial
    std::map<std::uint32_t, std::uint64_t> last_event;  // of each thread that asks or gives back
    std::uint64_t events = 0;

    void give(std::uint32_t thread, Do, Block&) {
        foreign.push_back(false);
        last_event[thread] = events;
    }
    void take(std::uint32_t thread, const Block& block) {
        if (block.thread != thread) foreign[block.serial] = true;
        last_event[thread] = events;
    }
    void move(std::uint32_t thread, const Block* from, const Block* to) {
        if (from != nullptr) take(thread, *from);
        if (to != nullptr) foreign.push_back(false);
        last_event[thread] = events;
    }
    void event() { ++events; }
};

// Second reading: operations by thread.
class Writer {
public:
    Writer(const Survey& survey, std::uint64_t epoch, std::uint64_t peak_at)
        : survey_(survey), epoch_(epoch), peak_at_(peak_at) {
        for (const auto& [thread, last] : survey.last_event) lanes_[thread].last = last;
    }

    Head head;
    struct Line {
        std::vector<Operation> operations;
        std::vector<std::uint32_t> free_slots;
        std::uint32_t slots = 0;
        std::uint64_t last = 0;
        bool ended = false;
    };
    const std::map<std::uint32_t, Line>& lanes() const { return lanes_; }

    void give(std::uint32_t thread, Do how, Block& block) {
        block.slot = slot_for(thread, block.serial);
        put(thread, how, block.size, no_slot, block.slot);
        ++head.mallocs;
    }
    void take(std::uint32_t thread, const Block& block) {
        put(thread, Do::free, block.size, block.slot, no_slot);
        leave(thread, block);
        ++head.frees;
    }
    void move(std::uint32_t thread, const Block* from, Block* to) {
        // To no bytes: not every allocator then frees.
        if (to == nullptr) return take(thread, *from);
        const std::uint32_t left = from != nullptr ? from->slot : no_slot;
        if (from != nullptr) leave(thread, *from);
        to->slot = slot_for(thread, to->serial);
        put(thread, Do::realloc, to->size, left, to->slot);
        ++head.reallocs;
    }
    // All that are still at work end an epoch together; one ends where most is live, to be looked
    // at there.
    void event() {
        if (++events_ % epoch_ == 0 || events_ == peak_at_) end_epoch();
    }
    void end_epoch() {
        ++head.epochs;
        for (auto& [thread, line] : lanes_) {
            if (line.ended) continue;
            line.operations.push_back({0, static_cast<std::uint64_t>(Do::epoch), no_slot, no_slot});
            line.ended = events_ > line.last;
        }
    }

private:
    void put(std::uint32_t thread, Do what, std::uint64_t size, std::uint32_t from,
             std::uint32_t to) {
        lanes_[thread].operations.push_back(
            {size & ((std::uint64_t{1} << 56) - 1), static_cast<std::uint64_t>(what), from, to});
    }
    std::uint32_t slot_for(std::uint32_t thread, std::uint64_t serial) {
        if (survey_.foreign[serial])
            return shared_slot | static_cast<std::uint32_t>(head.shared_slots++);
        Line& line = lanes_[thread];
        if (line.free_slots.empty()) return line.slots++;
        const std::uint32_t slot = line.free_slots.back();
        line.free_slots.pop_back();
        return slot;
    }
    void leave(std::uint32_t thread, const Block& block) {
        if ((block.slot & shared_slot) == 0) lanes_[thread].free_slots.push_back(block.slot);
        else ++head.handed_over;
    }

    const Survey& survey_;
    std::uint64_t epoch_, peak_at_, events_ = 0;
    std::map<std::uint32_t, Line> lanes_;
};

// What is missing would be replayed as a leak, or not at all.
void check_whole(heap::TraceReader& trace, const std::string& path) {
    heap::Bytes payload;
    heap::ProcessInfo process;
    for (const heap::ChunkRef& chunk : trace.chunks())
        if (chunk.header.kind == heap::ChunkKind::process && trace.read(chunk, payload))
            std::memcpy(&process, payload.data(), std::min(payload.size(), sizeof process));
    if (process.sample > 0 || process.at_least > 0)
        throw Error(path + " holds a part of the allocations only",
                    "record it anew without --sample and --at-least");
    if (process.lost > 0)
        throw Error(
            path + " lacks " + std::to_string(process.lost) + " events that could not be recorded",
            "record it anew");
}

// Reads all of a trace that has to be whole.
template <class Visitor>
Walk<Visitor> walked(const std::string& path, Visitor& visitor) {
    heap::TraceReader trace(path);
    const std::string fix = "replay needs a whole trace: record it anew";
    check_whole(trace, path);
    if (trace.damaged_bytes() > 0)
        throw Error(path + " is damaged: " + std::to_string(trace.damaged_bytes()) +
                        " bytes of it belong to no whole chunk",
                    fix);
    heap::EventMerger merger(trace);
    Walk<Visitor> walk(visitor);
    merger.for_each([&](std::uint32_t thread, const Event& event) { walk(thread, event); });
    if (merger.unreadable_chunks() > 0)
        throw Error(path + " is damaged: " + std::to_string(merger.unreadable_chunks()) +
                        " chunks cannot be read",
                    fix);
    return walk;
}

void save(const Writer& writer, Head& head, const std::string& path) {
    std::vector<Lane> lanes;
    for (const auto& [thread, line] : writer.lanes()) {
        lanes.push_back({head.operations, line.operations.size(), line.slots});
        head.operations += line.operations.size();
    }
    head.lanes = lanes.size();
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                               std::fclose);
    bool sound = file != nullptr;
    const auto put = [&](const void* data, std::size_t bytes) {
        sound = sound && (bytes == 0 || std::fwrite(data, bytes, 1, file.get()) == 1);
    };
    put(&head, sizeof head);
    put(lanes.data(), lanes.size() * sizeof(Lane));
    for (const auto& [thread, line] : writer.lanes())
        put(line.operations.data(), line.operations.size() * sizeof(Operation));
    if (!sound || std::fflush(file.get()) != 0)
        throw Error("cannot write " + path + ": " + std::strerror(errno), "is there room for it?");
}

}  // namespace

Head prepare(const std::string& trace, const std::string& script) {
    Survey survey;
    const auto first = walked(trace, survey);
    if (survey.last_event.empty())
        throw Error(trace + " holds no allocation", "record a program that allocates");
    Writer writer(survey, std::max<std::uint64_t>(1, survey.events / epochs_wanted), first.peak_at);
    const auto second = walked(trace, writer);
    writer.end_epoch();
    Head head = writer.head;
    head.peak_live = first.peak;
    head.left_live = second.live;
    head.unknown = second.unknown;
    save(writer, head, script);
    return head;
}

}  // namespace assay::alloc
