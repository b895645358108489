// The arena of this process: its file, the memory behind it, and the notes in its header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/heap/arena.hpp"

namespace assay::heap {

// Null until create_arena, and after release_arena.
extern ArenaHeader* header;

BufferHeader* buffer_at(std::uint32_t index);

// Creates "DIRECTORY/PID.N.arena". The file gets this name when it is complete.
bool create_arena(const char* directory);
// The directory of the last arena. It is stored, since a program may clear its environment.
const char* arena_directory();
void release_arena();         // unmaps the arena
void discard_arena_memory();  // deletes the file and frees its memory, without a recorder

// Allocates memory of the arena so that it can be touched. Returns false if there is none; the
// header then holds the shortage.
bool populate(void* address, std::size_t bytes);

}  // namespace assay::heap
