// What the hooks of exec and posix_spawn (preload/start.cpp) ask of the library that they are part
// of. Each library that is loaded into programs defines these.
//
// The functions may be called in the child of a vfork, so they neither allocate nor lock.
#pragma once

namespace assay::preload {

// How the file name of the library begins.
extern const char* const library_name;

// A program starts, and the library is not loaded into it or does nothing there. `why` follows the
// program's path in a sentence.
void note_start_without_library(const char* path, const char* why);

// Why the library would do nothing in a program that it can be loaded into; null: it works there.
// `has_library`: the library is in the program's LD_PRELOAD.
const char* why_idle(bool has_library);

// This process is about to be replaced by a program in which the library does nothing, and is not
// after all, because the exec has failed.
void note_end();
void cancel_end();

}  // namespace assay::preload
