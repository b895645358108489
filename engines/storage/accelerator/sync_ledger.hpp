// A ledger of the bytes that a rank has written into a file without the store: those since the last
// fsync, and those that the file system may have lost because an fsync failed.
//
// After a failed fsync the kernel counts the pages as clean, on most file systems, and the next
// fsync succeeds although they never reached the medium. This library has no copy of them, and the
// page cache proves nothing: a page may have been dropped and read again. So such bytes are lost
// until the program has written them again and a later fsync has succeeded.
#pragma once

#include <mutex>
#include <vector>

#include "storage/accelerator/range_set.hpp"

namespace assay::storage {

// Writes may come from any thread; the other calls are those of one sync at a time.
class SyncLedger {
public:
    // Call it after a write without the store: a sync that began before need not cover it.
    void note_written(std::uint64_t begin, std::uint64_t end);
    // Call it after a write into the store, which can repeat it after a failed fsync.
    void note_stored(std::uint64_t begin, std::uint64_t end);
    void note_truncated(std::uint64_t size);

    // A sync begins. It covers the bytes that were written before.
    void begin_sync();
    // The bytes that this sync makes durable if it succeeds.
    RangeSet covered() const;
    // Whether this sync covers bytes of which no store can repeat the write.
    bool is_only_copy() const { return !syncing_.empty(); }
    // The fsync has failed: its bytes are lost.
    void fail_sync();
    // The fsync has not taken place, or not all data were written: the next sync covers the bytes.
    void postpone_sync();
    void succeed_sync();
    // An fsync has succeeded for these bytes, which this rank or another one has written.
    void note_durable(const std::vector<Range>& ranges) { lost_.remove(ranges); }

    const RangeSet& lost() const { return lost_; }

private:
    std::mutex lock_;
    // Bytes written without the store and not synced, written through the store, covered by the
    // present sync, and lost.
    RangeSet written_, stored_, syncing_, lost_;
};

}  // namespace assay::storage
