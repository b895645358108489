// Creates and removes the folder of the rings and its wake-up pipe.
#include "profile/numa/record/ring_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profile/numa/hooks/ring.hpp"

namespace assay::numa {

RingFolder::RingFolder(const std::string& fallback) : folder_("assay-numa-", fallback) {
    const std::string name = path() + "/" + wake_pipe_name;
    // Opened for reading and writing, so that it gives no end of file when the last program closes
    // it.
    if (mkfifo(name.c_str(), 0600) == 0)
        pipe_ = open(name.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

RingFolder::~RingFolder() {
    if (pipe_ >= 0) close(pipe_);
}

bool RingFolder::was_woken() const {
    char bytes[4096];
    bool was_woken_up = false;
    while (pipe_ >= 0 && read(pipe_, bytes, sizeof bytes) > 0) was_woken_up = true;
    return was_woken_up;
}

}  // namespace assay::numa
