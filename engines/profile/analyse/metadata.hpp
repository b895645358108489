// Reads the chunks of a trace other than events: the process, its threads, modules and stacks,
// samples of its memory, and page faults.
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

// The memory use of the whole process at one point in time.
struct MemorySample {
    std::uint64_t time;  // ticks
    std::int64_t virtual_pages, resident_pages;
    std::int64_t shared_pages;  // resident pages of files and of shared memory
};

// The code position of a page fault: the instruction, and the innermost words of the stack.
struct FaultSite {
    std::uint64_t pc = 0;
    FaultStack words{};
    bool operator==(const FaultSite&) const = default;
};

// The first touch of a page.
struct PageFault {
    std::uint64_t time;  // ticks
    std::uint32_t tid;   // the kernel's thread id
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
    bool has_page_faults = false;        // page faults were recorded
    std::uint64_t lost_page_faults = 0;  // that the recorder did not get
    std::string mappings;         // text of the last mappings chunk, or the next if it is whole
    std::string mappings_at_end;  // as the process has recorded it; an empty line ends it
    std::uint64_t first_event = ~std::uint64_t{0}, last_event = 0;  // ticks
    std::uint64_t unreadable_chunks = 0;
    // Unrecorded programs that the process started, with the reasons.
    std::vector<std::string> unrecorded;

    double seconds_per_tick() const;
    double seconds_at(std::uint64_t ticks) const;
};

// Validates the page size of a trace. Replaces an impossible value by 4096 and returns false, since
// other code divides by the page size.
bool check_page_bytes(std::uint32_t& page_bytes);

// Reads everything but the events; of these only the first and the last time. Modules and the names
// of generated code go to `symbols`.
TraceMetadata read_metadata(TraceReader& trace, Symbols& symbols);

}  // namespace assay::heap
