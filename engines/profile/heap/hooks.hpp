// The names of the hooked functions, and the setter of the real functions.
#pragma once

#include <cstdint>

namespace assay::heap {

inline constexpr const char* hooked_names[] = {"malloc",
                                               "calloc",
                                               "realloc",
                                               "reallocarray",
                                               "free",
                                               "memalign",
                                               "aligned_alloc",
                                               "posix_memalign",
                                               "valloc",
                                               "pvalloc",
                                               "malloc_usable_size",
                                               "mmap",
                                               "mmap64",
                                               "munmap",
                                               "mremap",
                                               "brk",
                                               "sbrk",
                                               "dlclose",
                                               "pthread_getattr_np"};

// Sets the real functions in an attached process, where dlsym cannot be called. `address_of`
// returns 0 for a function that does not exist. Call it before the first hook is called.
void set_real_functions(std::uint64_t (*address_of)(const char* name));

// The end of the heap that grows by sbrk; 0 if unknown.
std::uint64_t program_break();

}  // namespace assay::heap
