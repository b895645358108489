// Resolves conflicts in the file system between ranks that wrote the same bytes.
//
// Each node drains independently, so of two nodes' writes to a byte the older one may reach the
// file system last. The rank that wrote the byte last writes it again, when the file must be
// complete and before its data are evicted from the ring. It first waits until no older write can
// appear and all older writes are in the file system on every node. A tombstone record
// (RecordKind::tombstone) remains for readers that do not know the evicted record yet.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::storage {

class Job;

class ConflictResolver {
public:
    explicit ConflictResolver(Job& job) : job_(job) {}

    // Of this rank's records before `upto`, which are drained: afterwards no older write hides one
    // of them in the file system. False: a node does not answer, or the file cannot be written.
    bool resolve(std::uint64_t upto);
    // Data were written again: what was resolved must be resolved anew.
    void forget() { resolved_before_ = 0; }
    // Whether another rank has written a byte of this rank's unresolved records.
    bool has_conflicts();
    // The Writer's EvictionGuard.
    std::uint64_t prepare_eviction(std::uint64_t first, std::uint64_t drained);

private:
    struct Piece {
        std::uint32_t file, generation;
        std::uint64_t begin, end, ring_offset, sequence;
    };
    struct ResolvingMark;
    // The bytes of records [from, upto) for which this rank's write is the newest of several.
    std::vector<Piece> winning_pieces(std::uint64_t from, std::uint64_t upto, bool& conflict);
    bool wait_until_published(std::uint64_t sequence);
    bool wait_until_drained(std::uint64_t sequence);
    bool rewrite(const std::vector<Piece>& pieces);
    bool resolve(std::uint64_t from, std::uint64_t upto, std::vector<Piece>& rewritten);
    bool publish_tombstones(const std::vector<Piece>& pieces, std::uint64_t first,
                            std::uint64_t drained);

    Job& job_;
    std::uint64_t resolved_before_ = 0;  // a record number
    bool last_wait_failed_ = false;      // the last wait for the file systems reached its limit
};

}  // namespace assay::storage
