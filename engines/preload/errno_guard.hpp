// Keeps the errno of a program whose call is intercepted: hooks make system calls of their own.
#pragma once

#include <errno.h>

namespace assay::preload {

// Restores the program's errno at the end of a scope.
class ErrnoGuard {
public:
    ErrnoGuard() : value_(errno) {}
    ~ErrnoGuard() { errno = value_; }
    ErrnoGuard(const ErrnoGuard&) = delete;
    ErrnoGuard& operator=(const ErrnoGuard&) = delete;

private:
    int value_;
};

}  // namespace assay::preload
