// The test data on a measured device: the first word of every page is a hash of the page's offset.
// So a read of any size can check data that writes of another size have left.
#pragma once

#include <cstddef>

#include "storage/content/content.hpp"

namespace assay::storage {

inline constexpr std::size_t data_page = 4096;  // transfers are multiples of it

inline const Content& device_content() {
    static const Content content(0, 0);
    return content;
}
inline void stamp_device_pages(std::byte* data, std::size_t bytes, std::size_t offset) {
    device_content().stamp_transfer(data, bytes, offset);
}
// Whether the first words of all pages are right.
inline bool pages_match(const std::byte* data, std::size_t bytes, std::size_t offset) {
    return !device_content().check_pages(data, bytes, offset);
}

}  // namespace assay::storage
