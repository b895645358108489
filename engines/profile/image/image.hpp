// What a program's file says about loading a library into it (LD_PRELOAD): whether it would have no
// effect, or end the program.
//
// Called before an exec, in the child of a vfork too: nothing here allocates, locks or changes
// memory that a parent sees. The files are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::image {

enum class Obstacle : std::uint8_t {
    none,  // or not known: no such file, no rights to read it
    statically_linked,
    privileged,         // setuid, setgid or capabilities: the loader ignores LD_PRELOAD
    musl,               // cannot load what needs glibc, and ends
    address_sanitizer,  // these end when another library comes before them
    thread_sanitizer,
    memory_sanitizer,
    other_machine  // for another processor, or of 32 bits: the loader complains
};

// The obstacle in the executable of `path`. Of a script it is that of its interpreter.
Obstacle obstacle_of(const char* path);

// What it says of the program, as in "is statically linked: ...".
const char* reason(Obstacle obstacle);

// Finds a program as a shell does, in the folders of `search`, separated by colons. False if there
// is none, or if its path has `bytes` bytes or more.
bool find_program(const char* name, const char* search, char* path, std::size_t bytes);

}  // namespace assay::image
