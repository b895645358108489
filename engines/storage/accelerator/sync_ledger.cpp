// Byte ranges of a file by their state: written, being synced, and lost.
#include "storage/accelerator/sync_ledger.hpp"

#include <utility>

namespace assay::storage {

void SyncLedger::note_written(std::uint64_t begin, std::uint64_t end) {
    const std::lock_guard guard(lock_);
    written_.add(begin, end);
}

void SyncLedger::note_stored(std::uint64_t begin, std::uint64_t end) {
    const std::lock_guard guard(lock_);
    stored_.add(begin, end);
}

void SyncLedger::note_truncated(std::uint64_t size) {
    const std::lock_guard guard(lock_);
    written_.truncate(size);
    stored_.truncate(size);
    lost_.truncate(size);
}

void SyncLedger::begin_sync() {
    const std::lock_guard guard(lock_);
    syncing_ = std::exchange(written_, {});
}

RangeSet SyncLedger::covered() const {
    RangeSet all = stored_;
    all.add(syncing_.certain());
    return all;
}

void SyncLedger::fail_sync() {
    lost_.add(syncing_.possible());
    syncing_.clear();
}

void SyncLedger::postpone_sync() {
    const std::lock_guard guard(lock_);
    written_.merge(syncing_);
    syncing_.clear();
}

void SyncLedger::succeed_sync() {
    const std::lock_guard guard(lock_);
    stored_.clear();
    syncing_.clear();
}

}  // namespace assay::storage
