// Runs a program and records the NUMA placement of its memory and of all processes it starts.
#pragma once

#include <string>
#include <vector>

#include "profile/numa/record/memory_events.hpp"

namespace assay::numa {

struct Settings {
    std::string directory;  // for the recordings, PID.N.numa; it must exist
    std::string library;    // path of the preloaded library
    std::vector<std::string> program;
    int emulated = 0;                       // number of emulated nodes; 0: the machine's nodes
    std::uint64_t min_object_bytes = 4096;  // smallest block that is an object of its own
    std::string plan;                       // placements to apply (hooks/apply.hpp); empty: none
    bool watches_faults = true;
    std::vector<MemoryEvent> events;  // that sample accesses; empty: only first touches
};

// Returns the program's wait status (waitpid(2)). Throws Error when it cannot be started.
int record(const Settings& settings);

}  // namespace assay::numa
