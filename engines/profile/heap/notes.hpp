// Notes of what this process starts and is not recorded. They are in the arena's header, so that
// they outlive an exec.
#pragma once

namespace assay::heap {

// Notes a program by its path, or a process by its name, and why it is not recorded. Once for each
// pair. Does nothing while nothing is recorded. May be called in the child of a vfork.
void note_unrecorded(const char* path, const char* reason);

// Whether a process of this user could have an arena of its own.
bool can_create_arena();

}  // namespace assay::heap
