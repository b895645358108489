// Page-aligned memory for large buffers. Buffers of 2 MiB and more use huge pages if the kernel has
// them. MPI's copies between processes (process_vm_readv) then look up one page instead of 512.
#pragma once

#include <cstddef>

namespace assay {

std::byte* allocate_pages(std::size_t bytes);  // throws std::bad_alloc
void free_pages(std::byte* memory);

}  // namespace assay
