// The runtime of the exact modes: counts each load and store of a program that was compiled for it,
// by site, object, node of the thread and node of the page.
//
// Counters belong to threads, so that nothing is shared and nothing is atomic. The processor comes
// from the thread's rseq area (glibc 2.35), at each access: threads need no binding. The shadow of
// the pages is reserved at a fixed address (layout.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/numa/exact/layout.hpp"
#include "profile/numa/format/lines.hpp"
#include "profile/stack/tree.hpp"

extern "C" const std::ptrdiff_t __rseq_offset;

namespace assay::numa {

inline constexpr unsigned table_bits = 17;  // of the gcc mode's table of a thread

// An entry of the gcc mode: one place, one class and node of pages, one node of the thread.
struct Entry {
    std::uint64_t pc;
    std::uint32_t value;  // of the shadow
    std::uint32_t thread_node;
    std::uint64_t reads, writes;
};

struct ThreadCounts {
    const volatile unsigned* processor;  // the number of the processor that the thread is on
    Entry* table;            // 2^table_bits entries, of the gcc mode; null without memory
    std::uint64_t overflow;  // accesses that found no room
    int tid;
    std::uint32_t number;
    ThreadCounts* next;
    // Of the LLVM pass.
    alignas(nodes_at) std::uint8_t nodes[max_processors];  // of each processor
    std::uint64_t values[value_counters];
    std::uint64_t sites[std::size_t{max_sites} * site_counters];
};
static_assert(offsetof(ThreadCounts, processor) == 0 && offsetof(ThreadCounts, nodes) == nodes_at &&
              offsetof(ThreadCounts, values) == values_at &&
              offsetof(ThreadCounts, sites) == sites_at);

inline std::uint32_t* shadow() { return reinterpret_cast<std::uint32_t*>(shadow_address); }
extern std::uint8_t processor_nodes[max_processors];
extern bool is_counting;

inline const volatile unsigned* processor_number() {
    const auto* base = static_cast<const char*>(__builtin_thread_pointer());
    return reinterpret_cast<const volatile unsigned*>(base + __rseq_offset + 4);
}

inline unsigned thread_node() { return processor_nodes[*processor_number() % max_processors]; }

// The calling thread's new counters; without memory those that are reported as lost. Never null.
ThreadCounts* add_thread();

// The shadow's value of a page that was not met yet; touches it if it is going to be written, and
// counts the first touch.
std::uint32_t meet_page(std::uint64_t address, bool write, std::uint64_t pc, ThreadCounts& counts);

// Of the objects; the report writes them.
struct ClassInfo {
    std::uint32_t object, part;
};
ClassInfo class_info(std::uint32_t number);
void write_objects(Lines& lines, std::uint64_t first_stack);
void write_touches(Lines& lines);

// The number of a stack of one address, for the rows of a recording.
std::uint64_t stack_of(std::uint64_t pc, Lines& lines);

// Nodes: the machine's or emulated ones.
// The rank in an MPI program, as its launcher told it; empty in others.
const char* mpi_rank();

void read_nodes();
bool is_emulated();
unsigned node_total();
void write_nodes(Lines& lines);

// Sites of the LLVM pass: `base` plus the index in the module's list.
struct StaticSite {
    const char* function;
    const char* file;
    std::uint32_t line;
    std::uint32_t is_write;
};
inline constexpr std::uint64_t static_stacks = 1 << 27;  // number of the first site's stack

}  // namespace assay::numa
