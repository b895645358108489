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
    // Configuration of the group leader that the event needs, if any.
    std::optional<std::uint64_t> leader;
    Operation operation = Operation::none;  // none: each sample holds its own
    std::vector<int> processors;            // empty: all
    bool excludes_kernel = true;            // false: samples tell user from kernel code
    std::uint64_t period = 0;               // accesses per sample; AMD: instructions
};

// `devices`: /sys/bus/event_source/devices. `period` 0: a default that slows the program by a
// few percent. Throws Error if no PMU samples accesses or a description cannot be parsed.
std::vector<MemoryEvent> find_memory_events(const std::string& devices, std::uint64_t period);

}  // namespace assay::numa
