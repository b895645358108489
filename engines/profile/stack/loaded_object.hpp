// The object (program or library) whose unwind tables cover an address.
//
// glibc 2.35 and newer find it without a lock (_dl_find_object). Older ones have dl_iterate_phdr(),
// which takes the lock of the list of objects; C++ exceptions of that time take it too. Neither
// allocates.
#pragma once

#include <cstdint>

namespace assay::stack {

struct LoadedObject {
    const std::uint8_t* tables = nullptr;  // .eh_frame_hdr
    const std::uint8_t* begin = nullptr;   // the mapping that holds the tables
    const std::uint8_t* end = nullptr;
};

// Returns false if no object covers the address, or if it has no tables.
bool find_loaded_object(std::uint64_t address, LoadedObject& object);

// The same by dl_iterate_phdr(), with any glibc.
bool find_in_list_of_objects(std::uint64_t address, LoadedObject& object);

}  // namespace assay::stack
