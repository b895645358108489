// HDF5 handles that close themselves, and error checks.
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

class Handle {
public:
    using Close = herr_t (*)(hid_t);
    // Aborts the job if `id` is an error.
    Handle(Ranks& ranks, hid_t id, Close closer, const char* doing) : id_(id), close_(closer) {
        if (id < 0)
            ranks.fail(std::string("HDF5 cannot ") + doing,
                       "see its error stack on standard error: --verbose");
    }
    ~Handle() { close(); }
    Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    operator hid_t() const { return id_; }
    void close() {
        if (id_ >= 0) close_(id_);
        id_ = -1;
    }

private:
    hid_t id_;
    Close close_;
};

inline void require(Ranks& ranks, herr_t status, const char* doing) {
    if (status < 0)
        ranks.fail(std::string("HDF5 cannot ") + doing,
                   "see its error stack on standard error: --verbose");
}

}  // namespace assay::storage
