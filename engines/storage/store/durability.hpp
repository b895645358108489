// The store's promise, and every question that follows from it.
//
//   A byte leaves the store only when it is durable in its file or superseded by a byte that is.
//   A store goes only when every byte in it has left.
//
// The data of a record go one way, and each step is a position that only grows:
//
//   published   below RankHead::tail           a rank has written them into its ring
//   drained     below RankHead::drained        they were handed to the file system, or that failed
//   durable     older than FileSlot::durable   they are on the file's medium
//   evicted     below RankHead::first_record   they have left the ring
//
// A write or an fsync that fails does not move a position back. It sets FileSlot::error: then all
// drained data that are not durable count as not written, and are written again from the rings,
// where they still are. After a failed fsync the kernel takes pages for clean that are not on the
// medium, so a later fsync that succeeds says nothing about them.
//
// Some data need not get into the file: a newer truncation cuts them off, another node has newer
// data of the same bytes (RecordKind::superseded), or the file has no name left.
//
// docs/design/storage-protocol.md describes the whole protocol.
#pragma once

#include <cstdint>
#include <string>

#include "storage/store/store.hpp"

namespace assay::storage {

// Whether the record belongs to its file: the slot still has that file, and the file has a name.
bool belongs_to_file(const Store& store, const Record& record);
// Whether it has data that belong to its file. Only such data must be kept.
bool has_data_of_file(const Store& store, const Record& record);

// A sequence: after a failed write or fsync, data of the file from there on are written again.
std::uint64_t repeated_from(const FileSlot& file);
// Whether a failed write or fsync must be repeated for a drained record of this sequence.
inline bool must_repeat(const FileSlot& file, std::uint64_t sequence) {
    return file.error.load() && sequence >= repeated_from(file);
}

// Whether drained data of the file may not be on its medium.
inline bool needs_sync(const FileSlot& file) {
    return file.drained_before.load() > file.durable.load() || file.repeats_unsettled.load();
}

// Whether the record may leave the ring. A truncation or a superseded record is needed as long as
// older data of its file may be repeated. A tombstone stands for data that have left already.
bool may_evict(const Store& store, const Record& record);

// Whether all data of the file are in the file system, maybe only in its page cache. No rank may
// have the file open.
bool is_written(const Store& store, std::uint32_t file);
// Whether all data of the file are on its medium.
bool is_durable(const Store& store, std::uint32_t file);

// Whether only the store has the record's data. The job must have ended. `position`: the record's
// number in the rank's ring.
bool is_pending(const Store& store, std::uint32_t rank, std::uint64_t position);

// Whether every byte has left the store or may leave it, so that the store may be removed.
bool may_remove(const Store& store);

// The first file with a failed write or fsync: its path and the error, as text for a message.
// Empty: there is none.
std::string describe_error(const Store& store);

// ---- transitions of a file; the caller holds the drain's lock

// drain: records up to `newest` are handed to the file system after this call.
void note_draining(FileSlot& file, std::uint64_t newest);
// sync: an fsync has succeeded that began when all data older than `before` were written.
void note_synced(const Store& store, FileSlot& file, std::uint64_t before);
// fail: a write or an fsync has failed. Call it before RankHead::drained passes the records.
void note_error(const Store& store, FileSlot& file, int error);

}  // namespace assay::storage
