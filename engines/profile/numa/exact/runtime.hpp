// The runtime of the exact modes: counts each load and store of a program that gcc or the LLVM pass
// has instrumented, by site, object, node of the thread and node of the page.
//
// Each thread has its own counters, so that no atomic operations are needed. Each access reads the
// processor from the thread's rseq area (glibc 2.35), so that threads need no binding. The shadow
// of the pages is reserved at a fixed address (layout.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/numa/exact/layout.hpp"
#include "profile/numa/format/lines.hpp"
#include "profile/stack/tree.hpp"

extern "C" const std::ptrdiff_t __rseq_offset;

namespace assay::numa {

inline constexpr unsigned table_bits = 17;  // of the gcc mode's table of a thread

// An entry of the gcc mode's hash table: the counts of one instruction, shadow value and node of
// the thread.
struct Entry {
    std::uint64_t pc;
    std::uint32_t value;  // of the shadow
    std::uint32_t thread_node;
    std::uint64_t reads, writes;
};

// Where the search for an entry begins.
inline std::uint64_t table_slot(std::uint64_t pc, std::uint32_t value, std::uint32_t thread_node) {
    const std::uint64_t hash =
        (pc ^ (std::uint64_t{value} << 24) ^ thread_node) * 0x9e3779b97f4a7c15ull;
    return hash >> (64 - table_bits);
}

struct ThreadCounts {
    const volatile unsigned* processor;  // the number of the processor that the thread is on
    Entry* table;            // 2^table_bits entries, of the gcc mode; null without memory
    std::uint64_t overflow;  // accesses that found the table full
    int tid;
    std::uint32_t number;
    ThreadCounts* next;
    // Of the LLVM pass.
    alignas(nodes_offset) std::uint8_t nodes[max_processors];  // of each processor
    std::uint64_t values[value_counters];
    std::uint64_t sites[std::size_t{max_sites} * site_counters];
    // Of the code that gcc has compiled.
    std::uint32_t node_keys[max_processors];  // (node + 1) << node_key_shift of each processor
    std::byte slots[(max_unit_sites + max_slot_sites) * site_slots_bytes];
};
static_assert(offsetof(ThreadCounts, processor) == 0 &&
              offsetof(ThreadCounts, nodes) == nodes_offset &&
              offsetof(ThreadCounts, values) == values_offset &&
              offsetof(ThreadCounts, sites) == sites_offset &&
              offsetof(ThreadCounts, node_keys) == node_keys_offset &&
              offsetof(ThreadCounts, slots) == slots_offset);

// The thread's counters; null until its first access.
extern "C" __attribute__((
    visibility("default"),
    tls_model("initial-exec"))) thread_local constinit ThreadCounts* __assay_numa_own;

inline std::uint32_t* shadow() { return reinterpret_cast<std::uint32_t*>(shadow_address); }
extern std::uint8_t processor_nodes[max_processors];
extern bool is_counting;

inline const volatile unsigned* processor_number() {
    const auto* base = static_cast<const char*>(__builtin_thread_pointer());
    return reinterpret_cast<const volatile unsigned*>(base + __rseq_offset + 4);
}

inline unsigned thread_node() { return processor_nodes[*processor_number() % max_processors]; }

// Creates the calling thread's counters. Without memory it returns counters that all such threads
// share, whose accesses are reported as lost. Never null.
ThreadCounts* add_thread();

// The counter of an instruction, shadow value and node of the thread in the thread's hash table;
// null if the table is full or missing.
std::uint64_t* find_or_add_counter(ThreadCounts& counts, std::uint64_t pc, std::uint32_t value,
                                   std::uint32_t thread_node, bool write);

// The slots of a thread that have counted something, as entries.
class Slots {
public:
    explicit Slots(const ThreadCounts& counts) : counts_(counts) {}
    bool next(Entry& entry);  // false at the end

private:
    const ThreadCounts& counts_;
    std::uint64_t position_ = 0;
};

// Handles an access to a page without a shadow value: touches the page if the access is a write,
// and counts the first touch. Returns the shadow value, and stores it if the node of the page is
// known.
std::uint32_t enter_page(std::uint64_t address, bool write, std::uint64_t pc, ThreadCounts& counts);

// The object and its part that a class number stands for.
struct ClassInfo {
    std::uint32_t object, part;
};
ClassInfo class_info(std::uint32_t number);
std::uint32_t class_count();  // classes have the numbers 1 to this
void write_objects(Lines& lines, std::uint64_t first_stack);
void write_touches(Lines& lines);

// Returns the number of the stack that consists of `pc` alone. Writes its row when it is new.
std::uint64_t stack_of(std::uint64_t pc, Lines& lines);

// The rank in an MPI program, from the launcher's environment variables; empty in other programs.
const char* mpi_rank();

// The NUMA nodes of the machine, or emulated ones.
void read_nodes();
bool is_emulated();
unsigned node_count();
std::uint64_t all_nodes();  // a mask
void write_nodes(Lines& lines);

// An access site of the LLVM pass. Its number is the module's base plus its index in the module.
struct StaticSite {
    const char* function;
    const char* file;
    std::uint32_t line;
    std::uint32_t is_write;
};
inline constexpr std::uint64_t first_site_stack = 1 << 27;  // number of the first site's stack

}  // namespace assay::numa
