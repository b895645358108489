// Counts the sampled memory accesses of a process: by object, stack, thread and NUMA nodes; by the
// sixteenth of the block that they hit; and by the memory level that served them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "profile/numa/format/lines.hpp"
#include "profile/numa/record/data_source.hpp"
#include "profile/numa/record/slices.hpp"

namespace assay::numa {

inline constexpr int no_object = -1;  // the sample has no address

struct SampledAccess {
    int object;
    std::uint32_t stack, thread;  // numbers of the process's raw stacks and threads
    int thread_node;              // -1: unknown
    std::uint64_t page;           // address / 4096
    int part;                     // sixteenth of the block, 0 to 15
    DataSource source;
    std::uint64_t ns;
};

class Accesses {
public:
    // The access is counted by the next count_pending().
    void add(const SampledAccess& access) { pending_.push_back(access); }
    std::vector<std::uint64_t> pending_pages() const;  // sorted, without duplicates
    // Counts all added accesses. `node_of` returns the node of a page, -1 if unknown.
    void count_pending(const std::function<int(std::uint64_t)>& node_of, Slices& slices);
    bool empty() const { return access_counts_.empty(); }

    // Writes the rows "access" and "part". The rows number stacks from 1, `SampledAccess` from 0.
    void write(Lines& lines) const;
    const std::array<std::uint64_t, memory_levels>& level_counts() const { return level_counts_; }

private:
    struct Count {
        std::uint64_t loads = 0, stores = 0;
    };
    // object, stack, thread, node of the thread, node of the page
    std::map<std::tuple<int, std::uint32_t, std::uint32_t, int, int>, Count> access_counts_;
    // object, part, thread, node of the thread, node of the page
    std::map<std::tuple<int, int, std::uint32_t, int, int>, std::uint64_t> part_counts_;
    std::array<std::uint64_t, memory_levels> level_counts_{};
    std::vector<SampledAccess> pending_;
};

}  // namespace assay::numa
