// A replay script: the allocation calls of each thread of a heap trace, in order, without times,
// stacks and addresses. The replaying process maps the file:
//
//     ScriptHeader | ThreadTrace for each thread | operations of all threads, thread by thread
//
// Each live block is in a slot. A block that its own thread frees uses a slot of that thread, and
// these slots are reused. A block that another thread frees has a shared slot of its own, on which
// that thread waits. Epochs divide the recorded time: no thread begins an epoch before all threads
// have ended the previous one, so that blocks that were live at the same time are so again, to
// within an epoch.
#pragma once

#include <cstdint>

namespace assay::alloc {

enum class OperationKind : std::uint8_t { malloc, calloc, realloc, free, end_epoch };

struct Operation {
    std::uint64_t size : 56;
    std::uint64_t kind : 8;     // OperationKind
    std::uint32_t freed_slot;   // of realloc and free
    std::uint32_t filled_slot;  // of malloc, calloc and realloc
};
static_assert(sizeof(Operation) == 16);

inline constexpr std::uint32_t shared_slot = 1u << 31;       // flag of shared slots
inline constexpr std::uint32_t no_slot = ~std::uint32_t{0};  // realloc of null, or no block

struct ThreadTrace {
    // The first operation as an index into those of all threads, and their number. The last
    // operation ends the thread's last epoch.
    std::uint64_t first, count;
    std::uint64_t slots;  // number of slots, without shared ones
};

struct ScriptHeader {
    static constexpr std::uint64_t tag = 0x31545053594c5041;  // "APLYSPT1"
    std::uint64_t magic = tag;
    std::uint64_t threads = 0, operations = 0, shared_slots = 0, epochs = 0;
    std::uint64_t mallocs = 0, reallocs = 0, frees = 0;  // numbers of calls; mallocs: with callocs
    std::uint64_t peak_live = 0;      // maximum of live requested bytes in the trace
    std::uint64_t leaked = 0;         // bytes never freed
    std::uint64_t unknown_frees = 0;  // frees of blocks without a recorded allocation; omitted
    std::uint64_t handed_over = 0;    // blocks that another thread freed
};

}  // namespace assay::alloc
