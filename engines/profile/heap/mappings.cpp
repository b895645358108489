// Records at the end of the process which pages of its objects' variables are in memory. The
// recorder lists them too, for processes that are killed, but it comes too late for the end.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "profile/heap/threads.hpp"
#include "profile/image/mappings.hpp"

namespace assay::heap {

void record_mappings(Thread& thread) {
    void* memory = map_zeroed(sizeof(image::ObjectMappings));
    if (memory == nullptr) return;
    const auto open_file = [](const char* path) {
        return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
    };
    const int maps = open_file("/proc/self/maps"), pagemap = open_file("/proc/self/pagemap");
    if (maps >= 0 && pagemap >= 0) {
        auto* mappings = new (memory) image::ObjectMappings(maps, pagemap);
        for (std::string_view line; !(line = mappings->next()).empty();)
            record_text(thread, Kind::mappings, line.data(), line.size());
        record_text(thread, Kind::mappings, "\n", 1);
    }
    if (maps >= 0) syscall(SYS_close, maps);
    if (pagemap >= 0) syscall(SYS_close, pagemap);
    syscall(SYS_munmap, memory, sizeof(image::ObjectMappings));
}

}  // namespace assay::heap
