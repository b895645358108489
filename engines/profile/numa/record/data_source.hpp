// The operation and the memory level of a sampled access, decoded from PERF_SAMPLE_DATA_SRC
// (perf_event_open(2)).
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::numa {

enum class Operation : std::uint8_t { none, load, store };

// The cache or memory that served an access. Local: on the NUMA node of the accessing thread.
enum class MemoryLevel : std::uint8_t {
    local_cache,
    local_memory,
    remote_cache,
    remote_memory,
    unknown
};
inline constexpr std::size_t memory_levels = 5;  // number of the enumerators

struct DataSource {
    Operation operation;
    MemoryLevel level;
};

// Decodes `mem_lvl_num` of newer kernels, and the bits `mem_lvl` of older ones.
DataSource read_data_source(std::uint64_t value);

}  // namespace assay::numa
