// Resolves conflicts in the file system between ranks that wrote the same bytes.
//
// Each node drains independently, so of two nodes' writes to a byte the older one may reach the
// file system last. Therefore the rank that wrote the byte last writes it again: when the file must
// be complete, and before the data are evicted from the rank's ring. It first waits until no older
// write can appear and all older writes are in the file system on every node. A tombstone record
// (RecordKind::tombstone) remains for readers that do not know the evicted record yet.
//
// A rank that takes part in no collective call of the file cannot do so. Therefore the newest bytes
// of any rank are written again over this rank's data before these leave its ring, and in a call
// that lacks ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/accelerator/service.hpp"
#include "storage/store/layout.hpp"

namespace assay::storage {

class Job;

class ConflictResolver {
public:
    explicit ConflictResolver(Job& job) : job_(job) {}

    // Resolves the conflicts of this rank's drained records before number `end_record`: afterwards
    // the file system has their data, except where a newer write exists. Returns false if a node
    // does not answer or a file cannot be written. Push::drain: all nodes that have older data of
    // these bytes have published them as superseded, or their fsync belongs to this one.
    // Push::sync: waits until their data are durable, and writes newer data of other ranks again.
    bool resolve(std::uint64_t end_record, Push push);
    // Whether all nodes have answered the last resolve().
    bool is_in_contact() const { return is_in_contact_; }
    // Call it after a drain has repeated writes: all conflicts must be resolved again.
    void restart() { resolved_before_ = 0; }
    // Waits until all nodes that share files with this process, or (`whole_job`) all of the job,
    // have pushed the data of all records up to `sequence` so far. Returns false if a node does not
    // answer or a file cannot be written.
    bool wait_until_pushed(Push push, std::uint64_t sequence, bool whole_job);
    // Whether another rank has written a byte of this rank's unsettled records.
    bool has_conflicts();
    // The Writer's EvictionGuard.
    std::uint64_t prepare_eviction(std::uint64_t first, std::uint64_t end);

private:
    // A range of a file, and where its newest data are: in the data ring of a rank (as an index
    // names it), of which other ranks' are copied first.
    struct Piece {
        std::uint32_t file, generation;
        std::uint64_t begin, end, ring_offset, sequence;
        std::uint32_t rank;
        std::vector<char> copy{};
    };
    struct ResolvingScope;
    // Calls `action` with each block of records [from, end_record) of files that several nodes
    // share: the record, the block's range in the file, and where it is in the data ring.
    template <class Action>
    void for_each_shared_block(std::uint64_t from, std::uint64_t end_record, Action action);
    // The bytes of records [from, end_record) that other ranks have written too, and for which this
    // rank's write is the newest, or (`of_all`) that of another rank, and not settled.
    std::vector<Piece> newest_pieces(std::uint64_t from, std::uint64_t end_record, bool of_all);
    bool copy_data_of_others(std::vector<Piece>& pieces);
    bool wait_until_published(std::uint64_t sequence);
    bool rewrite(std::vector<Piece> pieces);
    bool resolve(std::uint64_t from, std::uint64_t end_record, Push push,
                 std::vector<Piece>& rewritten);
    void note_resolved(std::uint64_t end_record);
    bool publish_tombstones(const std::vector<Piece>& pieces, std::uint64_t first,
                            std::uint64_t end);

    Job& job_;
    std::uint64_t resolved_before_ = 0;    // a record number
    std::uint64_t unresolved_before_ = 0;  // the end of the records that attempts have failed for
    bool is_in_contact_ = true;
    bool last_wait_failed_ = false;  // the last wait for drains reached its limit
};

}  // namespace assay::storage
