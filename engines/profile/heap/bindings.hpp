// Puts the hooks into a process that already runs. Its calls are bound, so interposing by name is
// too late: the words of the global offset tables, through which objects call one another, are
// changed.
//
// This is done for every loaded object but the loader and this library, for each word that holds a
// hooked function or is still unbound. Each is one store, so a thread that calls at that moment
// calls either function. An object that binds one of the names to something else has its own
// allocator and is left alone. Function addresses that the program copied before, or gets from
// dlsym, are not seen.
#pragma once

#include <link.h>

namespace assay::heap {

enum class HookPosition : unsigned char {
    no_allocator,   // there is nothing to hook
    not_preloaded,  // the program's calls reach the real functions
    preloaded,      // the hooks were loaded with the program and interpose by name
};

// Finds the hooks and the functions that they are to call. Allocates nothing and does not ask the
// loader for a name.
HookPosition find_functions();

// Whether the executable exports a malloc. Known after find_functions().
bool has_own_allocator();

// Binds the hooks in all objects. No thread may be about to load an object.
void bind_hooks();
// Restores the real functions in all objects; at any time.
void unbind_hooks();
// Binds the hooks in an object that may be new; false while the loader is still relocating it.
bool bind_hooks_in(const dl_phdr_info& object);
bool has_bound_hooks();

}  // namespace assay::heap
