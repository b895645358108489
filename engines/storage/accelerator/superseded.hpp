// Bytes of this node of which another node has newer data.
//
// After a failed write or fsync a node writes all its unsettled data again, and so do background
// drains and recovery, when no node can be asked any more. Of bytes that several nodes wrote the
// older ones could then come last. So before a file's data are written, each rank publishes which
// of its bytes another node has written later (RecordKind::superseded). From then on nobody writes
// its older data of these bytes.
//
// That loses nothing: a record can be seen only after its data are in the other node's store, where
// they are as safe as this node's are in its own.
#pragma once

#include <cstdint>

#include "storage/store/layout.hpp"

namespace assay::storage {

class Job;

constexpr std::uint32_t all_files = file_slots;

// Publishes superseded records for the unsettled data of this rank in the file of the slot, or in
// all files. Afterwards no drain of this node writes these bytes. Returns false if a node does not
// answer or the ring has no space for the records. The caller holds Job::lock().
bool publish_superseded(Job& job, std::uint32_t slot);

}  // namespace assay::storage
