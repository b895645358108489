// The operators new and delete of an allocator that brings its own: jemalloc, tcmalloc, mimalloc.
//
// Those of libstdc++ call malloc and free, whose hooks see them. An allocator's own ones do not, so
// they are hooked themselves, where the object that defines them exports malloc as well. The hook
// library exports no operator, since it would take the place of those that a program defines. Two
// things are changed instead: the words through which objects call the operators (slots.hpp), and
// the operators' addresses in the allocator's symbol table, from which calls that are not bound
// yet, and those of objects that are loaded later, are bound.
#pragma once

namespace assay::heap {

// Binds the hooks, if an allocator brings its operators. An allocator that is part of the
// executable is left alone: the executable's own calls cannot be seen. No object may be about to be
// relocated. Allocates nothing.
void bind_operators();
// Restores the allocator's operators everywhere; at any time.
void unbind_operators();

}  // namespace assay::heap
