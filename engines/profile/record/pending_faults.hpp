// Page faults of processes that have no recorder yet: a process faults before its arena is found,
// and a process that is not recorded at all never gets one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "profile/record/fault_watch.hpp"

namespace assay::heap {

class PendingFaults {
public:
    explicit PendingFaults(std::size_t limit) : limit_(limit) {}

    // Keeps a fault. Beyond the limit all are dropped and counted.
    void add(const Fault& fault) {
        faults_.push_back(fault);
        if (faults_.size() <= limit_) return;
        for (const Fault& each : faults_) {
            Dropped& dropped = dropped_[each.pid];
            ++dropped.count;
            dropped.last_ns = std::max(dropped.last_ns, each.ns);
        }
        faults_.clear();
    }

    // Passes each fault to `take`, which returns whether its process has a recorder. Keeps the
    // others.
    template <class Take>
    void pass(Take take) {
        std::erase_if(faults_, take);
    }

    // How many faults of a process were dropped. It started at `start_ns` (CLOCK_MONOTONIC_RAW):
    // drops that all lie before are of the program that it replaced.
    std::uint64_t dropped(std::uint32_t pid, std::uint64_t start_ns) const {
        const auto entry = dropped_.find(pid);
        return entry == dropped_.end() || entry->second.last_ns < start_ns ? 0
                                                                           : entry->second.count;
    }

private:
    struct Dropped {
        std::uint64_t count = 0, last_ns = 0;
    };
    std::size_t limit_;
    std::vector<Fault> faults_;
    std::unordered_map<std::uint32_t, Dropped> dropped_;  // by pid
};

}  // namespace assay::heap
