// Counts other network measurements on this host, and is counted by them. Two measurements at the
// same time share the network, so each would report only a part of its capacity.
//
// Each measurement binds a Unix socket in the abstract namespace. That needs no file and no
// privilege, ends with the process, and belongs to the network namespace, as the interfaces do.
#pragma once

namespace assay::network {

class ConcurrentRuns {
public:
    ConcurrentRuns();
    ~ConcurrentRuns();
    ConcurrentRuns(const ConcurrentRuns&) = delete;
    ConcurrentRuns& operator=(const ConcurrentRuns&) = delete;

    // How many other measurements ran when this object was made, or have begun since then.
    int count();

private:
    int socket_ = -1, count_ = 0;
};

}  // namespace assay::network
