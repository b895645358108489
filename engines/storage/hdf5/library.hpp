// Errors and ownership for calls of the HDF5 library. Handle owns an HDF5 identifier and closes it;
// require() checks the status of a call. Both abort the MPI job on an error.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

class Handle {
public:
    using Close = herr_t (*)(hid_t);  // H5Fclose, H5Dclose, ...
    // Aborts the job if `id` is negative, HDF5's error value. `action` completes the message "HDF5
    // cannot ...".
    Handle(Ranks& ranks, hid_t id, Close closer, const char* action) : id_(id), close_(closer) {
        if (id < 0)
            ranks.fail(std::string("HDF5 cannot ") + action,
                       "run with --verbose to see HDF5's error stack on standard error");
    }
    ~Handle() { close(); }
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    operator hid_t() const { return id_; }
    // Closes the identifier now, at most once.
    void close() {
        if (id_ >= 0) close_(id_);
        id_ = -1;
    }

private:
    hid_t id_;
    Close close_;
};

// Aborts the job if `status` is negative. `action` is as above.
inline void require(Ranks& ranks, herr_t status, const char* action) {
    if (status < 0)
        ranks.fail(std::string("HDF5 cannot ") + action,
                   "run with --verbose to see HDF5's error stack on standard error");
}

}  // namespace assay::storage
