// Allocates buffers at page boundaries.
#include "core/pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace assay {
namespace {

constexpr std::size_t page = 4096, huge_page = 2 << 20;

}  // namespace

std::byte* allocate_pages(std::size_t bytes) {
    const std::size_t alignment = bytes < huge_page ? page : huge_page;
    const std::size_t rounded_bytes = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, rounded_bytes) != 0) throw std::bad_alloc();
    if (alignment == huge_page)
        madvise(memory, rounded_bytes, MADV_HUGEPAGE);  // if refused, pages stay small
    return static_cast<std::byte*>(memory);
}

void free_pages(std::byte* memory) { std::free(memory); }

}  // namespace assay
