// The temporary directory of the arenas, through which the hooks of the programs and the recorder
// share memory. It goes with the recorder; that of a recorder that was killed goes with the next.
#pragma once

#include <sys/types.h>

#include <string>

namespace assay::heap {

class ArenaDirectory {
public:
    // In memory if there is room, else in the folder `fallback`. Throws Error if in neither.
    explicit ArenaDirectory(const std::string& fallback);
    ~ArenaDirectory();
    ArenaDirectory(const ArenaDirectory&) = delete;
    ArenaDirectory& operator=(const ArenaDirectory&) = delete;

    const std::string& path() const { return path_; }
    // Permits the process, which may belong to another user, to create its arena here.
    void chown_to_owner(pid_t pid) const;

private:
    std::string path_;
    int lock_ = -1;  // descriptor of the directory, locked as long as the recorder lives
};

// Removes this user's directories in `memory` that no recorder has locked and that are a minute
// old.
void remove_abandoned_arenas(const std::string& memory);

}  // namespace assay::heap
