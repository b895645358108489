// The events by which this machine's processors sample memory accesses: the loads and stores of
// Intel's PMU, or AMD's instruction-based sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profile/numa/record/data_source.hpp"

namespace assay::numa {

struct MemoryEvent {
    std::string name;  // "cpu/mem-loads/"
    std::uint32_t type = 0;
    std::uint64_t config[3] = {};
    // Of an event that only counts in a group behind this one.
    std::optional<std::uint64_t> leader;
    Operation operation = Operation::none;  // none: each sample tells
    std::vector<int> processors;            // empty: all
    bool leaves_out_kernel = true;          // else the samples say who ran
    std::uint64_t period = 0;               // accesses, or instructions of AMD, a sample
};

// `devices`: /sys/bus/event_source/devices. `period`: 0 for one that costs a few percent. Throws
// Error where no PMU samples accesses, or an event is described in a way that is not understood.
std::vector<MemoryEvent> find_memory_events(const std::string& devices, std::uint64_t period);

}  // namespace assay::numa
