// Runs a program and records the placement of its memory, and that of all processes it starts.
#pragma once

#include <string>
#include <vector>

#include "profile/numa/record/memory_events.hpp"

namespace assay::numa {

struct Settings {
    std::string directory;  // for the recordings, PID.N.numa; it must exist
    std::string library;    // the preloaded part
    std::vector<std::string> program;
    int emulated = 0;               // emulated nodes; 0: the machine's own
    std::uint64_t at_least = 4096;  // bytes of a block that is an object of its own
    std::string plan;               // placements to apply (hooks/apply.hpp); empty: none
    bool watches_faults = true;
    std::vector<MemoryEvent> events;  // that sample accesses; none in touch mode
};

// Returns the program's exit status as wait() has it. Throws Error when it cannot be started.
int record(const Settings& settings);

}  // namespace assay::numa
