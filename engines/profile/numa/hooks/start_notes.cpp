// Notes the programs that a recorded process starts without the library: a file each, in the folder
// of the rings. Its name is made of the program's path, so that a program is noted once.
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/start.hpp"
#include "profile/numa/hooks/ring.hpp"

namespace assay::preload {
namespace {

// FNV-1a, of 64 bits.
uint64_t hash_of(const char* text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (; *text != 0; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
    return hash;
}

}  // namespace

const char* const library_name = "libassay-numa.so";

// Raw system calls are not cancellation points.
void note_start_without_library(const char* path, const char* why) {
    const char* folder = getenv(numa::rings_variable);
    char name[PATH_MAX];
    if (folder == nullptr || snprintf(name, sizeof name, "%s/%s%016llx", folder, numa::note_prefix,
                                      static_cast<unsigned long long>(hash_of(path))) >= PATH_MAX)
        return;
    const auto fd = static_cast<int>(syscall(
        SYS_openat, AT_FDCWD, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd < 0) return;
    const iovec parts[] = {{const_cast<char*>(why), strlen(why)},
                           {const_cast<char*>("\n"), 1},
                           {const_cast<char*>(path), strlen(path)}};
    syscall(SYS_writev, fd, parts, 3);
    syscall(SYS_close, fd);
}

const char* why_idle(bool) { return nullptr; }
void note_end() {}
void cancel_end() {}

}  // namespace assay::preload
