// What a memory sample says of its access: the value of PERF_SAMPLE_DATA_SRC (perf_event_open(2)).
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::numa {

enum class Operation : std::uint8_t { none, load, store };

// What answered an access. Near: of the thread's own node.
enum class Server : std::uint8_t { near_cache, near_memory, far_cache, far_memory, unknown };
inline constexpr std::size_t servers = 5;

struct DataSource {
    Operation operation;
    Server server;
};

// Reads the numbered levels that newer kernels write, and the bits of older ones.
DataSource read_data_source(std::uint64_t value);

}  // namespace assay::numa
