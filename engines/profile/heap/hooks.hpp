// The names of what is hooked, and the functions behind the hooks.
#pragma once

#include <cstdint>

namespace assay::heap {

inline constexpr const char* hooked[] = {"malloc",
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

// Where no hook can find them itself: each is what `address_of` says, 0 for none. Before the first
// hook is called.
void resolve_by(std::uint64_t (*address_of)(const char* name));

}  // namespace assay::heap
