// A heap trace made ready to be run again: what each thread asks for and gives back, in order,
// without the clock, the stacks and the addresses. One file, mapped as it lies by the process that
// runs it:
//
//     Head | Lane of each thread | operations of all lanes, one lane after the other
//
// A block is a slot. One that is given up by the thread that asked for it has a slot of that
// thread's, used again and again; one that goes to another thread has a slot of its own, in which
// that thread waits for it. An epoch is a stretch of the recorded time: no thread begins one before
// all have ended the last, so that what was live together is live together again, within an epoch.
#pragma once

#include <cstdint>

namespace assay::alloc {

enum class Do : std::uint8_t { malloc, calloc, realloc, free, epoch };

struct Operation {
    std::uint64_t size : 56;
    std::uint64_t what : 8;  // Do
    std::uint32_t from;      // slot given up: of realloc and free
    std::uint32_t to;        // slot filled: of malloc, calloc and realloc
};
static_assert(sizeof(Operation) == 16);

inline constexpr std::uint32_t shared_slot = 1u << 31;  // this bit: a slot that two threads use
inline constexpr std::uint32_t no_slot =
    ~std::uint32_t{0};  // of a realloc that begins or ends nothing

struct Lane {
    std::uint64_t first, count;  // operations; the last is the end of the lane's last epoch
    std::uint64_t slots;         // of its own
};

struct Head {
    static constexpr std::uint64_t tag = 0x31545053594c5041;  // "APLYSPT1"
    std::uint64_t magic = tag;
    std::uint64_t lanes = 0, operations = 0, shared_slots = 0, epochs = 0;
    std::uint64_t mallocs = 0, reallocs = 0,
                  frees = 0;      // calls that will be made; calloc is one of the first
    std::uint64_t peak_live = 0;  // bytes asked for that were live together in the trace
    std::uint64_t left_live = 0;  // bytes never given back
    std::uint64_t unknown = 0;    // frees of blocks from before the recording: left out
    std::uint64_t handed_over =
        0;  // blocks given up by another thread than that which asked for them
};

}  // namespace assay::alloc
