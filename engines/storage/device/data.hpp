// What a device holds while it is measured: the first word of every page says where it lies.
// Whatever size it was written in, a transfer of any other finds the same words.
#pragma once

#include <cstddef>

#include "storage/content/content.hpp"

namespace assay::storage {

inline constexpr std::size_t data_page = 4096;  // transfers are multiples of it

inline const Content& device_content() {
    static const Content content(0, 0);
    return content;
}
inline void place_words(std::byte* data, std::size_t bytes, std::size_t offset) {
    device_content().place(data, bytes, offset);
}
inline bool words_are_right(const std::byte* data, std::size_t bytes, std::size_t offset) {
    return !device_content().misplaced(data, bytes, offset);
}

}  // namespace assay::storage
