// The chunks of a trace other than events: the process, its threads, modules and stacks, samples of
// its memory, and page faults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/analyse/python_metadata.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"
#include "profile/trace/file.hpp"

namespace assay::heap {

// Memory of the whole process at one moment.
struct MemorySample {
    std::uint64_t time;  // ticks
    std::int64_t virtual_pages, resident_pages;
    std::int64_t shared_pages;  // resident pages of files and of shared memory
};

// Where a thread took a page fault: the instruction, and the last words of the thread's stack.
struct FaultSite {
    std::uint64_t pc = 0;
    FaultStack words{};
    bool operator==(const FaultSite&) const = default;
};

// The first touch of a page.
struct PageFault {
    std::uint64_t time;  // ticks
    std::uint32_t tid;   // as the kernel numbers threads
    std::uint32_t site;  // index into TraceMetadata::fault_sites
    std::uint64_t address;
};

struct TraceMetadata {
    ProcessInfo process{};
    std::string program, rank;  // rank: in MPI_COMM_WORLD; empty for a program without MPI
    std::optional<double> attached_after;  // seconds since the process's start; none: not attached
    std::vector<stack::Node> nodes;        // of the stack tree
    std::unordered_map<std::uint32_t, std::string> thread_names;     // by serial number
    std::unordered_map<std::uint32_t, std::uint32_t> thread_of_tid;  // serial number by tid
    PythonMetadata python;
    std::vector<MemorySample> samples;
    std::vector<PageFault> page_faults;  // in time order
    std::vector<FaultSite> fault_sites;
    bool has_page_faults = false;                                   // they were recorded
    std::string mappings;                                           // the last such chunk
    std::uint64_t mappings_time = 0;                                // ticks
    std::uint64_t first_event = ~std::uint64_t{0}, last_event = 0;  // ticks
    std::uint64_t unreadable_chunks = 0;
    std::vector<std::string> unrecorded;  // what the process started and is not recorded

    double seconds_per_tick() const;
    double seconds_at(std::uint64_t ticks) const;
};

// Checks the page size of a trace. False for a value that no processor has; it is then set to 4096,
// because other code divides by it and counts in steps of 16 bytes within it.
bool check_page_bytes(std::uint32_t& page_bytes);

// Reads everything but the events, of which only the first and the last time are taken. Modules and
// the names of code that was generated at run time go to `symbols`.
TraceMetadata read_metadata(TraceReader& trace, Symbols& symbols);

}  // namespace assay::heap
