// Allocates the pages of a mapped file before they are touched. Touching a page for which the file
// has no room, or that is beyond the end of the file, ends the program with SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::stack {

// Makes the pages writable. Returns false if there is no memory for them. The content is unchanged.
bool populate(void* address, std::size_t bytes);

// The way of populate() on kernels before Linux 5.14: a system call per page.
bool populate_by_futex(void* address, std::size_t bytes);

// The largest size of a file that this process may make. A larger one would end it with SIGXFSZ.
std::uint64_t max_file_bytes();

}  // namespace assay::stack
