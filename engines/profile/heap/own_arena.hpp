// The arena of this process: its file, the memory behind it, and the notes in its header.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profile/heap/arena.hpp"

namespace assay::heap {

// Null until create_arena, and after release_arena.
extern ArenaHeader* header;

BufferHeader* buffer_at(std::uint32_t index);

// Creates "DIRECTORY/PID.N.arena", which gets this name when it is complete.
bool create_arena(const char* directory);
// The directory of the last arena: a program may clear its environment.
const char* arena_directory();
void release_arena();         // unmaps it
void discard_arena_memory();  // deletes the file and gives its memory back: nobody reads it

// Makes sure that this memory of the arena can be touched. False if there is none; the shortage is
// noted in the header.
bool populate(void* address, std::size_t bytes);

}  // namespace assay::heap
