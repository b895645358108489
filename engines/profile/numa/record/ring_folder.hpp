// The folder in which the profiled processes make their rings, and the pipe by which they wake the
// recorder: when a ring is new or half full, and when a process ends.
#pragma once

#include <string>

#include "core/memory_folder.hpp"

namespace assay::numa {

class RingFolder {
public:
    // Throws Error where neither /dev/shm nor `fallback` can hold it.
    explicit RingFolder(const std::string& fallback);
    ~RingFolder();
    RingFolder(const RingFolder&) = delete;
    RingFolder& operator=(const RingFolder&) = delete;

    const std::string& path() const { return folder_.path(); }
    int pipe() const { return pipe_; }  // readable when a program has woken the recorder
    // Empties the pipe. Returns whether it held a wake-up.
    bool was_woken() const;

private:
    MemoryFolder folder_;
    int pipe_ = -1;
};

}  // namespace assay::numa
