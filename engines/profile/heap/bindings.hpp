// Binds the hooks in a running process. Its symbols are already bound, so interposing by name is
// too late. Instead, the slots of the global offset tables (GOT), through which objects call one
// another, are changed.
//
// This is done for every loaded object but the loader and this library, for each slot that holds a
// hooked function or is still unbound. Each change is one store, so a concurrent call reaches
// either function. An object that binds one of the names to another function has its own allocator
// and is excluded. Function addresses that the program has copied before, or gets from dlsym, are
// not changed.
#pragma once

#include <link.h>

namespace assay::heap {

enum class HookPosition : unsigned char {
    no_allocator,   // there is nothing to hook
    not_preloaded,  // the program's calls reach the real functions
    preloaded,      // the hooks were loaded with the program and interpose by name
};

// Finds the hooks and the real functions that they call. Neither allocates nor looks up names
// through the loader.
HookPosition find_functions();

// Whether the executable exports a malloc. Known after find_functions().
bool has_own_allocator();

// Binds the hooks in all objects. No thread may be about to load an object.
void bind_hooks();
// Restores the real functions in all objects. May be called at any time.
void unbind_hooks();
// Binds the hooks in an object that may be new. Returns false while the loader is still relocating
// it.
bool bind_hooks_in(const dl_phdr_info& object);
bool has_bound_hooks();

}  // namespace assay::heap
