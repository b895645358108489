// A temporary folder through which a recorder and the programs that it records share memory. It
// goes with its recorder; that of a recorder that was killed goes with the next.
#pragma once

#include <string>

namespace assay {

class MemoryFolder {
public:
    // A new folder in /dev/shm, whose name begins with `prefix`; in the folder `fallback` where
    // that cannot be written or has not 32 MiB free. Throws Error if neither will do.
    MemoryFolder(const std::string& prefix, const std::string& fallback);
    ~MemoryFolder();  // removes the folder
    MemoryFolder(const MemoryFolder&) = delete;
    MemoryFolder& operator=(const MemoryFolder&) = delete;

    const std::string& path() const { return path_; }

private:
    std::string path_;
    int lock_ = -1;  // descriptor of the folder, locked as long as the recorder lives
};

// Removes this user's folders in `memory` whose names begin with `prefix`, that no recorder has
// locked and that are a minute old.
void remove_abandoned_folders(const std::string& memory, const std::string& prefix);

}  // namespace assay
