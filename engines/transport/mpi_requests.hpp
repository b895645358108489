// The MPI requests in flight. A ticket is an index into the table of requests. One MPI_Testsome
// call tests the whole table and returns all completed requests. Entries are reused last-in
// first-out, so the table is only as long as the largest number of requests so far.
#pragma once

#include <mpi.h>

#include <vector>

#include "transport/transport.hpp"

namespace assay {

class MpiRequests {
public:
    // Calls start(request), which begins an operation.
    template <class Start>
    Ticket begin(Start start) {
        const Ticket ticket = allocate();
        start(&requests_[static_cast<std::size_t>(ticket)]);
        return ticket;
    }
    void poll(std::vector<Ticket>& completed) {
        if (active_ == 0) return;
        indices_.resize(requests_.size());
        int done = 0;
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done, indices_.data(),
                     MPI_STATUSES_IGNORE);
        if (done == MPI_UNDEFINED) return;
        active_ -= done;
        for (int i = 0; i < done; ++i) {
            const Ticket ticket = indices_[static_cast<std::size_t>(i)];
            free_.push_back(ticket);
            completed.push_back(ticket);
        }
    }

private:
    Ticket allocate() {
        ++active_;
        if (free_.empty()) {
            requests_.push_back(MPI_REQUEST_NULL);
            return static_cast<Ticket>(requests_.size() - 1);
        }
        const Ticket ticket = free_.back();
        free_.pop_back();
        return ticket;
    }

    std::vector<MPI_Request> requests_;
    std::vector<Ticket> free_;
    std::vector<int> indices_;
    int active_ = 0;
};

}  // namespace assay
