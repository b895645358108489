// Notes about programs that this process starts and that are not recorded. They are in the arena's
// header, so that they survive an exec.
#pragma once

namespace assay::heap {

// Notes the path of a program, or the name of a process, and the reason why it is not recorded,
// once for each pair. Does nothing while recording is off. May be called in the child of a vfork.
void note_unrecorded(const char* path, const char* reason);

// Whether a process of this user can create its own arena.
bool can_create_arena();

}  // namespace assay::heap
