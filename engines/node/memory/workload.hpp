// The memory traffic of an application, as data: stations that each take the same steps, every step
// a thread that works block after block at a given rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay::node {

enum class Operation { write, read, copy, transpose };

struct PacedStep {
    Operation operation;
    std::size_t block;  // bytes
    double rate;        // bytes of blocks a second

    // A copy and a transposition read a block and write one.
    double moved() const {
        return operation == Operation::copy || operation == Operation::transpose ? 2 : 1;
    }
};

struct Workload {
    std::string name;
    int stations = 0;
    std::vector<PacedStep> steps;
    // A transposition moves chunk i to place (i * multiplier) mod the number of chunks.
    std::size_t chunk = 0, multiplier = 1;

    double desired() const;      // B/s that all threads move
    std::size_t memory() const;  // bytes that all threads hold
};

// From JSON, as Python makes it of a workload file. Throws Error for what makes no sense.
Workload parse_workload(const std::string& json);

const char* word(Operation);

// The place of a chunk, or of the bytes after the last whole one, which stay where they are.
inline std::size_t transposed(std::size_t chunk, std::size_t multiplier, std::size_t chunks) {
    return chunk * multiplier % chunks;
}

}  // namespace assay::node
