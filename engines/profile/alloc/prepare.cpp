// Converts a heap trace into a replay script. The trace is read twice: the first pass finds the
// blocks that another thread frees, the second pass builds the script.
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

constexpr std::uint64_t target_epochs = 200;

struct Block {
    std::uint64_t serial = 0;  // number of the allocation in the trace
    std::uint64_t size = 0;
    std::uint32_t thread = 0;
    std::uint32_t slot = no_slot;
};

// Converts events into allocations, frees and reallocations of blocks. A reallocation is reported
// after it has succeeded.
//     visitor.on_malloc(thread, OperationKind, Block&)
//     visitor.on_free(thread, const Block&)
//     visitor.on_realloc(thread, const Block* old_block, Block* new_block)   null: no block
//     visitor.on_event()                                         after each event
template <class Visitor>
class BlockTracker {
public:
    explicit BlockTracker(Visitor& visitor) : visitor_(visitor) {}

    std::uint64_t peak = 0, live = 0;  // bytes
    std::uint64_t unknown_frees = 0;
    std::uint64_t peak_event = 0;  // number of events until the peak

    void operator()(std::uint32_t thread, const Event& event) {
        const heap::Kind kind = heap::kind_of(event);
        const std::uint64_t address = heap::address_of(event);
        switch (kind) {
            case heap::Kind::malloc:
            case heap::Kind::memalign:
                allocate(thread, OperationKind::malloc, address, event.size);
                break;
            case heap::Kind::calloc:
                allocate(thread, OperationKind::calloc, address, event.size);
                break;
            case heap::Kind::free:
                if (const auto block = remove(address)) visitor_.on_free(thread, *block);
                else ++unknown_frees;
                break;
            case heap::Kind::realloc_from: reallocating_[thread] = remove(address); break;
            case heap::Kind::realloc: reallocate(thread, address, event.size); break;
            default: break;
        }
        ++events_;
        visitor_.on_event();
    }

private:
    void allocate(std::uint32_t thread, OperationKind kind, std::uint64_t address,
                  std::uint64_t size) {
        free_stale(thread, address);
        Block block{serial_++, size, thread};
        visitor_.on_malloc(thread, kind, block);
        insert(address, block);
    }

    void reallocate(std::uint32_t thread, std::uint64_t address, std::uint64_t size) {
        const std::optional<Block> old_block = std::exchange(reallocating_[thread], std::nullopt);
        if (size == heap::not_reallocated) {
            if (old_block) insert(address, *old_block);
            return;
        }
        if (address == 0) {  // realloc(block, 0), which frees
            if (old_block) visitor_.on_realloc(thread, &*old_block, nullptr);
            return;
        }
        free_stale(thread, address);
        Block new_block{serial_++, size, thread};
        visitor_.on_realloc(thread, old_block ? &*old_block : nullptr, &new_block);
        insert(address, new_block);
    }

    // A live block at this address was freed without an event.
    void free_stale(std::uint32_t thread, std::uint64_t address) {
        if (const auto stale = remove(address)) visitor_.on_free(thread, *stale);
    }
    void insert(std::uint64_t address, const Block& block) {
        blocks_.insert({address, block});
        live += block.size;
        if (live <= peak) return;
        peak = live;
        peak_event = events_ + 1;
    }
    std::optional<Block> remove(std::uint64_t address) {
        const auto entry = blocks_.find(address);
        if (entry == blocks_.end()) return std::nullopt;
        const Block block = entry->second;
        blocks_.erase(entry);
        live -= block.size;
        return block;
    }

    Visitor& visitor_;
    tsl::robin_map<std::uint64_t, Block, heap::BlockHash> blocks_;
    std::map<std::uint32_t, std::optional<Block>> reallocating_;  // by thread
    std::uint64_t serial_ = 0, events_ = 0;
};

// First pass: finds the blocks that another thread frees, and the last event of each thread.
struct FirstPass {
    std::vector<bool> is_shared;                        // by serial number of the block
    std::map<std::uint32_t, std::uint64_t> last_event;  // of each thread
    std::uint64_t events = 0;

    void on_malloc(std::uint32_t thread, OperationKind, Block&) {
        is_shared.push_back(false);
        last_event[thread] = events;
    }
    void on_free(std::uint32_t thread, const Block& block) {
        if (block.thread != thread) is_shared[block.serial] = true;
        last_event[thread] = events;
    }
    void on_realloc(std::uint32_t thread, const Block* old_block, const Block* new_block) {
        if (old_block != nullptr) on_free(thread, *old_block);
        if (new_block != nullptr) is_shared.push_back(false);
        last_event[thread] = events;
    }
    void on_event() { ++events; }
};

// Second pass: builds the operations of each thread.
class ScriptBuilder {
public:
    ScriptBuilder(const FirstPass& first_pass, std::uint64_t epoch_events, std::uint64_t peak_event)
        : first_pass_(first_pass), epoch_events_(epoch_events), peak_event_(peak_event) {
        for (const auto& [thread, last] : first_pass.last_event) threads_[thread].last_event = last;
    }

    ScriptHeader header;
    struct ThreadScript {
        std::vector<Operation> operations;
        std::vector<std::uint32_t> free_slots;
        std::uint32_t slots = 0;
        std::uint64_t last_event = 0;
        bool has_ended = false;
    };
    const std::map<std::uint32_t, ThreadScript>& threads() const { return threads_; }

    void on_malloc(std::uint32_t thread, OperationKind kind, Block& block) {
        block.slot = slot_for(thread, block.serial);
        append(thread, kind, block.size, no_slot, block.slot);
        ++header.mallocs;
    }
    void on_free(std::uint32_t thread, const Block& block) {
        append(thread, OperationKind::free, block.size, block.slot, no_slot);
        release_slot(thread, block);
        ++header.frees;
    }
    void on_realloc(std::uint32_t thread, const Block* old_block, Block* new_block) {
        // Not every allocator frees the block at a realloc to size 0, so the script calls free.
        if (new_block == nullptr) return on_free(thread, *old_block);
        const std::uint32_t freed_slot = old_block != nullptr ? old_block->slot : no_slot;
        if (old_block != nullptr) release_slot(thread, *old_block);
        new_block->slot = slot_for(thread, new_block->serial);
        append(thread, OperationKind::realloc, new_block->size, freed_slot, new_block->slot);
        ++header.reallocs;
    }
    // Epochs have equal numbers of events. One more ends at the peak, since the replay reads the
    // resident memory at the end of each epoch.
    void on_event() {
        if (++events_ % epoch_events_ == 0 || events_ == peak_event_) end_epoch();
    }
    void end_epoch() {
        ++header.epochs;
        for (auto& [id, thread] : threads_) {
            if (thread.has_ended) continue;
            thread.operations.push_back(
                {0, static_cast<std::uint64_t>(OperationKind::end_epoch), no_slot, no_slot});
            thread.has_ended = events_ > thread.last_event;
        }
    }

private:
    void append(std::uint32_t thread, OperationKind kind, std::uint64_t size,
                std::uint32_t freed_slot, std::uint32_t filled_slot) {
        threads_[thread].operations.push_back({size & ((std::uint64_t{1} << 56) - 1),
                                               static_cast<std::uint64_t>(kind), freed_slot,
                                               filled_slot});
    }
    std::uint32_t slot_for(std::uint32_t thread, std::uint64_t serial) {
        if (first_pass_.is_shared[serial])
            return shared_slot | static_cast<std::uint32_t>(header.shared_slots++);
        ThreadScript& script = threads_[thread];
        if (script.free_slots.empty()) return script.slots++;
        const std::uint32_t slot = script.free_slots.back();
        script.free_slots.pop_back();
        return slot;
    }
    void release_slot(std::uint32_t thread, const Block& block) {
        if ((block.slot & shared_slot) == 0) threads_[thread].free_slots.push_back(block.slot);
        else ++header.handed_over;
    }

    const FirstPass& first_pass_;
    std::uint64_t epoch_events_, peak_event_, events_ = 0;
    std::map<std::uint32_t, ThreadScript> threads_;
};

// Throws Error for an incomplete trace: a missing free would be replayed as a leak, and a missing
// allocation would not be replayed.
void check_complete(heap::TraceReader& trace, const std::string& path) {
    heap::Bytes payload;
    heap::ProcessInfo process;
    for (const heap::ChunkRef& chunk : trace.chunks())
        if (chunk.header.kind == heap::ChunkKind::process && trace.read(chunk, payload))
            std::memcpy(&process, payload.data(), std::min(payload.size(), sizeof process));
    if (process.sample_bytes > 0 || process.min_block_bytes > 0)
        throw Error(path + " holds only a part of the allocations",
                    "record it again without --sample and --at-least");
    if (process.lost > 0)
        throw Error(
            path + " lacks " + std::to_string(process.lost) + " events that could not be recorded",
            "record it again");
}

// Passes all events of a complete trace to the visitor.
template <class Visitor>
BlockTracker<Visitor> read_trace(const std::string& path, Visitor& visitor) {
    heap::TraceReader trace(path);
    const std::string fix = "replay needs a complete trace: record it again";
    check_complete(trace, path);
    if (trace.damaged_bytes() > 0)
        throw Error(path + " is damaged: " + std::to_string(trace.damaged_bytes()) +
                        " bytes belong to no complete chunk",
                    fix);
    heap::EventMerger merger(trace);
    BlockTracker<Visitor> tracker(visitor);
    merger.for_each([&](std::uint32_t thread, const Event& event) { tracker(thread, event); });
    if (merger.unreadable_chunks() > 0)
        throw Error(path + " is damaged: " + std::to_string(merger.unreadable_chunks()) +
                        " chunks cannot be read",
                    fix);
    return tracker;
}

void save(const ScriptBuilder& builder, ScriptHeader& header, const std::string& path) {
    std::vector<ThreadTrace> threads;
    for (const auto& [id, thread] : builder.threads()) {
        threads.push_back({header.operations, thread.operations.size(), thread.slots});
        header.operations += thread.operations.size();
    }
    header.threads = threads.size();
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                               std::fclose);
    bool is_written = file != nullptr;
    const auto write = [&](const void* data, std::size_t bytes) {
        is_written = is_written && (bytes == 0 || std::fwrite(data, bytes, 1, file.get()) == 1);
    };
    write(&header, sizeof header);
    write(threads.data(), threads.size() * sizeof(ThreadTrace));
    for (const auto& [id, thread] : builder.threads())
        write(thread.operations.data(), thread.operations.size() * sizeof(Operation));
    if (!is_written || std::fflush(file.get()) != 0)
        throw Error("cannot write " + path + ": " + std::strerror(errno),
                    "check for free disk space");
}

}  // namespace

ScriptHeader prepare(const std::string& trace, const std::string& script) {
    FirstPass first_pass;
    const auto first_tracker = read_trace(trace, first_pass);
    if (first_pass.last_event.empty())
        throw Error(trace + " holds no allocation", "record a program that allocates");
    ScriptBuilder builder(first_pass, std::max<std::uint64_t>(1, first_pass.events / target_epochs),
                          first_tracker.peak_event);
    const auto second_tracker = read_trace(trace, builder);
    builder.end_epoch();
    ScriptHeader header = builder.header;
    header.peak_live = first_tracker.peak;
    header.leaked = second_tracker.live;
    header.unknown_frees = second_tracker.unknown_frees;
    save(builder, header, script);
    return header;
}

}  // namespace assay::alloc
