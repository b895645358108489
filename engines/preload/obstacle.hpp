// Checks an executable for obstacles to LD_PRELOAD: reasons why a preloaded library would have no
// effect or would end the program. All of Assay's libraries are loaded by this one decision.
//
// The functions are called before an exec, also in the child of a vfork, so they do not allocate,
// lock or change memory of the parent. The files are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::preload {

enum class PreloadObstacle : std::uint8_t {
    none,  // or unknown: the file is missing or unreadable
    statically_linked,
    privileged,         // setuid, setgid or capabilities: the loader ignores LD_PRELOAD
    musl,               // fails to load a library that needs glibc, and ends
    address_sanitizer,  // sanitizers end the program if another library precedes theirs
    thread_sanitizer,
    memory_sanitizer,
    other_machine  // for another processor, or of 32 bits: the loader complains
};

// Returns the obstacle of an executable; for a script, that of its interpreter.
PreloadObstacle obstacle_of(const char* path);

// The same of a command, which is found in the folders of PATH.
PreloadObstacle obstacle_of_command(const char* name);

// The obstacle in words, to follow the program's name: "is statically linked: ...".
const char* reason(PreloadObstacle obstacle);

// Finds a program like a shell, in the folders of `search`, separated by colons, and writes its
// path. Returns false if there is none or its path has `bytes` bytes or more.
bool find_program(const char* name, const char* search, char* path, std::size_t bytes);

}  // namespace assay::preload
