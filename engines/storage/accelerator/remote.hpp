// Data of ranks on other nodes: what they have written (told at collective moments) and the bytes themselves (asked for
// when they are read).
//
// A node's leader answers from the mapped store, in a thread of its own: no rank has to enter MPI for another to read
// what it wrote, which MPI's one-sided reads over TCP would need. Where a window shows at the start that it makes
// progress by itself (RDMA), reads go through that instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/accelerator/mpi.hpp"
#include "storage/store/index.hpp"

namespace assay::storage {

class Job;

// Bytes of a rank's data ring that are wanted here.
struct Wanted {
    int world_rank;
    std::uint64_t place, bytes;
    char* to;
    std::uint64_t file_begin;  // where they lie in the file, should they be gone from the ring
    bool gone = false;
};

class Remote {
public:
    // Collective over the job. `wrong`: why it cannot be had.
    static std::unique_ptr<Remote> start(Job& job, std::string& wrong);
    virtual ~Remote() = default;

    // Fetches them; those that their rank no longer has are marked.
    virtual void fetch(std::vector<Wanted>& wanted) = 0;
    // Adds to a shared pointer of another node's store; its value before.
    virtual std::uint64_t add_to_pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set) = 0;
    virtual const char* name() const = 0;
};

}  // namespace assay::storage
