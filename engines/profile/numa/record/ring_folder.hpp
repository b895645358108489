// The folder in which the profiled processes make their rings, and the pipe by which they wake the
// recorder: when a ring is new or half full, and when a process ends.
#pragma once

#include <string>

namespace assay::numa {

class RingFolder {
public:
    // Below /dev/shm, or else below `fallback`. Throws Error when neither is writable.
    explicit RingFolder(const std::string& fallback);
    ~RingFolder();  // removes it
    RingFolder(const RingFolder&) = delete;
    RingFolder& operator=(const RingFolder&) = delete;

    const std::string& path() const { return path_; }
    int pipe() const { return pipe_; }  // readable when somebody has woken the recorder
    // Empties the pipe; whether anything was in it.
    bool was_woken() const;

private:
    std::string path_;
    int pipe_ = -1;
};

}  // namespace assay::numa
