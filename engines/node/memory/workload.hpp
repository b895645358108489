// The description of an application's memory traffic: a number of stations (data sources, such as
// the antenna stations of a radio telescope) with the same processing steps. Each step of each
// station is a thread that processes block after block at a given rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::node {

enum class Operation { write, read, copy, transpose };

struct PacedStep {
    Operation operation;
    std::size_t block;  // bytes
    double rate;        // bytes of blocks per second

    // Bytes moved per byte of a block: copy and transpose read one block and write one.
    double traffic() const {
        return operation == Operation::copy || operation == Operation::transpose ? 2 : 1;
    }
};

struct Workload {
    std::string name;
    int stations = 0;
    std::vector<PacedStep> steps;
    // A transposition moves chunk i to position (i * multiplier) mod the number of chunks.
    std::size_t chunk = 0, multiplier = 1;

    double desired() const;      // B/s that all threads move
    std::size_t memory() const;  // bytes that all threads allocate
};

// From the JSON that Python generates from a workload file. Throws Error for an invalid workload.
Workload parse_workload(const std::string& json);

const char* name(Operation);

// The new position of a chunk. Bytes after the last whole chunk keep their position.
inline std::size_t transposed(std::size_t chunk, std::size_t multiplier, std::size_t chunks) {
    return chunk * multiplier % chunks;
}

}  // namespace assay::node
