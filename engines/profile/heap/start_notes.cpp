// Notes the programs that a recorded process starts and that are not recorded.
#include "preload/start.hpp"
#include "profile/heap/notes.hpp"
#include "profile/heap/process.hpp"

namespace assay::preload {

const char* const library_name = "libassay-heap.so";

void note_start_without_library(const char* path, const char* why) {
    heap::note_unrecorded(path, why);
}

const char* why_idle(bool has_library) {
    if (!has_library) return "is started without LD_PRELOAD in its environment";
    return heap::can_create_arena() ? nullptr
                                    : "runs as another user, who cannot write the buffers";
}

void note_end() { heap::note_exit(); }
void cancel_end() { heap::cancel_exit(); }

}  // namespace assay::preload
