// Other nodes' stores through MPI's one-sided reads, where those are worth it: a network that moves
// the bytes by itself.
//
// Over TCP an MPI's window either does not exist or stands still while its target computes. So it
// is tried at the start: a rank reads from one that sleeps. What does not answer meanwhile is not
// used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/accelerator/mpi.hpp"

namespace assay::storage {

class Job;
struct Wanted;

class Window {
public:
    // Collective over the job. Null: there is none that makes progress by itself; `why` in words.
    static std::unique_ptr<Window> open(Job& job, std::string& why);
    ~Window();
    // False: MPI reported an error.
    bool fetch(std::vector<Wanted*>& wanted);

private:
    explicit Window(Job& job) : job_(job) {}
    bool progresses();
    Job& job_;
    MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace assay::storage
