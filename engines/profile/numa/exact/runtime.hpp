// The runtime of the exact modes: counts each load and store of a program that was compiled for it,
// by site, object, node of the thread and node of the page.
//
// A flat shadow holds four bytes a page, reserved at a fixed address: the node in the low three
// bits, above it the class, which is an object and one of its sixteen parts. 0 means that the page
// was not met yet. Counters belong to threads, so that nothing is shared and nothing is atomic. The
// processor comes from the thread's rseq area (glibc 2.35), at each access: threads need no
// binding.
#pragma once

#include <cstdint>

#include "profile/numa/format/lines.hpp"
#include "profile/stack/tree.hpp"

extern "C" const std::ptrdiff_t __rseq_offset;

namespace assay::numa {

inline constexpr std::uint64_t shadow_address = 0x200000000000, page_count = std::uint64_t{1} << 35;
inline constexpr unsigned node_bits = 3, unknown_node = 7, max_real_nodes = 7;
inline constexpr unsigned parts = 16, max_classes = 1 << 16;
inline constexpr unsigned max_sites = 1 << 16;  // of the LLVM pass
inline constexpr unsigned site_counters = 64;   // thread node * 8 + page node
inline constexpr unsigned table_bits = 17;      // of the gcc mode's table of a thread
inline constexpr unsigned max_processors = 4096;

// An entry of the gcc mode: one place, one class and node of pages, one node of the thread.
struct Entry {
    std::uint64_t pc;
    std::uint32_t value;  // of the shadow
    std::uint32_t thread_node;
    std::uint64_t reads, writes;
};

struct ThreadCounts {
    Entry* table;            // 2^table_bits entries; null without memory
    std::uint64_t* sites;    // max_sites * site_counters, of the LLVM pass
    std::uint64_t* values;   // 8 for each value of the shadow: by node of the thread
    std::uint64_t overflow;  // accesses that found no room
    int tid;
    std::uint32_t number;
    ThreadCounts* next;
};

inline std::uint32_t* shadow() { return reinterpret_cast<std::uint32_t*>(shadow_address); }
extern std::uint8_t processor_nodes[max_processors];
extern bool is_counting;

inline unsigned thread_node() {
    const auto* base = static_cast<const char*>(__builtin_thread_pointer());
    const unsigned processor =
        *reinterpret_cast<const volatile unsigned*>(base + __rseq_offset + 4);
    return processor_nodes[processor % max_processors];
}

// Null while nothing is counted.
ThreadCounts* add_thread();
ThreadCounts* all_threads();

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
void write_static_sites(Lines& lines, std::uint64_t first_stack, const ThreadCounts* threads);

}  // namespace assay::numa
