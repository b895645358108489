// A write into a rank's ring, as the accelerator makes it.
#pragma once

#include <cstring>

#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"

namespace assay::storage {

// Writes one block as one record. Returns false if the writer has no space.
inline bool write_block(Store& store, Writer& writer, std::uint32_t slot, std::uint64_t offset,
                        const void* data, std::size_t bytes) {
    std::uint64_t ring_offset = 0;
    char* to = writer.reserve(bytes, 1, ring_offset);
    if (!to) return false;
    writer.begin_write();
    std::memcpy(to, data, bytes);
    Record record{};
    record.file = slot, record.generation = store.file(slot).generation;
    record.kind = static_cast<std::uint64_t>(RecordKind::data);
    record.begin = offset, record.length = record.stride = bytes, record.count = 1;
    writer.publish(&record, 1, ring_offset, bytes);
    return true;
}

}  // namespace assay::storage
