// Reads from other nodes' stores by MPI's one-sided communication, for networks with RDMA.
//
// Over TCP an MPI's window either does not exist or makes no progress while its target computes. So
// it is tested at the start: a rank reads from one that sleeps. If no answer arrives in time, the
// window is not used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/accelerator/mpi.hpp"

namespace assay::storage {

class Job;
struct RemoteRead;

class Window {
public:
    // Collective over the job. Null: there is no usable window; `reason` says why.
    static std::unique_ptr<Window> open(Job& job, std::string& reason);
    ~Window();
    // False: MPI reported an error.
    bool fetch(std::vector<RemoteRead*>& reads);

private:
    explicit Window(Job& job) : job_(job) {}
    bool makes_progress();
    Job& job_;
    MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace assay::storage
