// Page-aligned memory for large buffers. From 2 MiB on it is in huge pages where the kernel gives
// them: a copy by another process then looks up one page in place of 512.
#pragma once

#include <cstddef>

namespace assay {

std::byte* allocate_pages(std::size_t bytes);  // throws std::bad_alloc
void free_pages(std::byte* memory);

}  // namespace assay
