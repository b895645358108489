// The folder in which the profiled processes make their rings, and the pipe by which they wake the
// recorder: when a ring is new or half full, and when a process ends.
#pragma once

#include <string>

namespace assay::numa {

class RingFolder {
public:
    // Creates the folder in /dev/shm, or else in `fallback`. Throws Error if neither is writable.
    explicit RingFolder(const std::string& fallback);
    ~RingFolder();  // removes the folder
    RingFolder(const RingFolder&) = delete;
    RingFolder& operator=(const RingFolder&) = delete;

    const std::string& path() const { return path_; }
    int pipe() const { return pipe_; }  // readable when a program has woken the recorder
    // Empties the pipe. Returns whether it held a wake-up.
    bool was_woken() const;

private:
    std::string path_;
    int pipe_ = -1;
};

}  // namespace assay::numa
