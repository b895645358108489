// Puts the hooks into a process that runs already, where none of its calls would find them by name:
// into the words through which its objects call one another (their global offset tables).
//
// Of every loaded object, but for the loader and this one, those words are changed that hold one of
// the hooked functions, or that are still to be bound; each in one store, so that a thread that
// calls just then calls either. An object in which one of the names means something else has an
// allocator of its own, and is left alone. What a program has copied from there before, or asks
// dlsym for, is not seen.
#pragma once

#include <link.h>

namespace assay::heap {

enum class Front : unsigned char {
    none,      // there is nothing to be hooked
    behind,    // the program's calls find the functions themselves
    in_front,  // the hooks were loaded with the program, and stand in front of them by name
};

// Where the hooks are, and the functions that they are to call. Allocates nothing and resolves no
// name by the loader.
Front find_functions();

// In all objects, while no thread is about to load one.
void bind_hooks();
// The functions as they were; in all objects, at any time.
void unbind_hooks();
// In an object that may have been loaded since; false while the loader is still at work on it.
bool bind_hooks_in(const dl_phdr_info& object);
// Whether there are any.
bool has_bound_hooks();

}  // namespace assay::heap
