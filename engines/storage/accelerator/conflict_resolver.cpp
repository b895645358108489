// Finds bytes that this rank and other ranks have written, waits until the file system has all
// older writes of them, and writes this rank's data again where they are the newest. Terms are in
// store/layout.hpp.
#include "storage/accelerator/conflict_resolver.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "storage/accelerator/failing_wait.hpp"
#include "storage/accelerator/job.hpp"
#include "storage/accelerator/range_records.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/write_queue.hpp"

namespace assay::storage {
namespace {

// Each poll of a wait asks the other nodes. The pauses between two grow with the wait, by which it
// takes a sixteenth longer: a file system that stalls for minutes is no load for the network.
constexpr long shortest_poll_ns = 50'000, longest_poll_ns = 5'000'000;
constexpr std::uint64_t push_period_ns = 10'000'000;  // between two requests to drain or to sync
constexpr int this_node = -1;

// What a wait for a file that cannot be written takes at least.
constexpr std::uint64_t shortest_wait_ns = 5'000'000'000;
// The same after a wait that has failed: long enough for one retry, and shorter, so that each
// later write of the program waits less.
constexpr std::uint64_t shortest_further_wait_ns = 1'500'000'000;

// Polls until the condition holds. It has no limit, because a file system may stall for minutes.
// All conditions below also hold when a node does not answer.
template <class Condition>
void wait_until(Condition condition) {
    for (long poll_ns = shortest_poll_ns; !condition();
         poll_ns = std::min(poll_ns + poll_ns / 16, longest_poll_ns))
        usleep(static_cast<unsigned>(poll_ns / 1000));
}

}  // namespace

// Clears `resolving` at the end of the scope. Ranks that resolve later wait for that.
struct ConflictResolver::ResolvingScope {
    explicit ResolvingScope(Job& job) : resolving(job.store().head(job.local_rank()).resolving) {}
    ~ResolvingScope() { resolving.store(0, std::memory_order_seq_cst); }
    std::atomic<std::uint64_t>& resolving;
};

template <class Action>
void ConflictResolver::for_each_shared_block(std::uint64_t from, std::uint64_t end_record,
                                             Action action) {
    const Store& store = job_.store();
    for (std::uint64_t k = from; k < end_record; ++k) {
        const Record& record = store.record(job_.local_rank(), k);
        const auto& slot = store.file(record.file);
        if (static_cast<RecordKind>(record.kind) != RecordKind::data ||
            slot.generation != record.generation || slot.deleted.load() ||
            !job_.directory().is_shared(record.file))
            continue;
        const Index& writes_of_others = job_.directory().writes_of_others(record.file);
        if (!writes_of_others.runs() && !writes_of_others.extents()) continue;
        for (std::uint64_t block = 0; block < record.count; ++block) {
            const std::uint64_t begin = record.begin + block * record.stride;
            action(record, begin, begin + record.length,
                   record.ring_offset + block * record.length);
        }
    }
}

std::vector<ConflictResolver::Piece> ConflictResolver::newest_pieces(std::uint64_t from,
                                                                     std::uint64_t end_record,
                                                                     bool of_all) {
    std::vector<Piece> pieces;
    const auto add_pieces = [&](const Record& record, std::uint64_t begin, std::uint64_t end,
                                std::uint64_t ring_offset) {
        Index& writes_of_others = job_.directory().writes_of_others(record.file);
        Index& all_writes = job_.directory().all_writes(record.file);
        const bool is_settled = record.sequence < job_.store().file(record.file).settled.load();
        for (std::uint64_t offset = begin, next; offset < end; offset = next) {
            const Lookup other_write = writes_of_others.find(offset, end);
            next = other_write.end;
            const bool is_newer = other_write.sequence > record.sequence;
            if (!other_write.has_data || (is_newer && (!of_all || is_settled))) continue;
            const Lookup newest = all_writes.find(offset, other_write.end);
            next = newest.end;
            // A newer record of this rank is looked at for itself.
            const bool is_found = newest.rank == job_.local_rank()
                                      ? newest.ring_offset == ring_offset + (offset - begin)
                                      : is_newer && newest.rank != file_system_rank;
            if (newest.has_data && is_found)
                pieces.push_back({record.file, record.generation, offset, newest.end,
                                  newest.ring_offset, newest.sequence, newest.rank});
        }
    };
    for_each_shared_block(from, end_record, add_pieces);
    return pieces;
}

// Copies what other ranks have in their rings. What they have evicted is durable, and nothing older
// comes over it any more. Returns false if a node does not answer.
bool ConflictResolver::copy_data_of_others(std::vector<Piece>& pieces) {
    std::vector<RemoteRead> reads;
    std::vector<Piece*> read_pieces;
    const auto is_evicted = [this](const Piece& piece) {
        return piece.rank != job_.local_rank() && !(piece.rank & remote_rank_bit) &&
               !job_.in_ring(piece.rank, piece.ring_offset);
    };
    std::erase_if(pieces, is_evicted);
    for (Piece& piece : pieces) {
        if (piece.rank == job_.local_rank()) continue;
        piece.copy.resize(piece.end - piece.begin);
        if (piece.rank & remote_rank_bit) {
            reads.push_back({static_cast<int>(piece.rank & ~remote_rank_bit), piece.ring_offset,
                             piece.copy.size(), piece.copy.data(), piece.begin});
            read_pieces.push_back(&piece);
        } else {
            std::memcpy(piece.copy.data(), job_.store().data(piece.rank, piece.ring_offset),
                        piece.copy.size());
        }
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!reads.empty()) job_.remote()->fetch(reads);
    bool succeeded = true;
    for (std::size_t k = 0; k < reads.size(); ++k) {
        succeeded &= reads[k].state != RemoteRead::failed;
        if (reads[k].state == RemoteRead::evicted) read_pieces[k]->end = read_pieces[k]->begin;
    }
    std::erase_if(
        pieces, [&](const Piece& piece) { return piece.end == piece.begin || is_evicted(piece); });
    return succeeded;
}

// Bytes whose conflict is resolved still count as long as they are not settled (FileSlot::settled):
// after a failed fsync a drain writes all unsettled data again, including older data of its node.
bool ConflictResolver::has_conflicts() {
    if (!job_.directory().has_shared_files()) return false;
    const auto& head = job_.store().head(job_.local_rank());
    if (!job_.directory().query_nodes()) return true;
    job_.directory().scan_node(true);
    bool has_conflict = false;
    for_each_shared_block(head.first_record.load(), head.tail.load(),
                          [&](const Record& record, std::uint64_t offset, std::uint64_t end, auto) {
                              if (record.sequence < job_.store().file(record.file).settled.load())
                                  return;
                              Index& others = job_.directory().writes_of_others(record.file);
                              for (Lookup found; offset < end && !has_conflict;
                                   offset = found.end) {
                                  found = others.find(offset, end);
                                  has_conflict = found.has_data;
                              }
                          });
    return has_conflict;
}

// Waits until this process knows all records that are older than `sequence`. Returns false if a
// node does not answer.
bool ConflictResolver::wait_until_published(std::uint64_t sequence) {
    auto& directory = job_.directory();
    bool reached = true;
    wait_until([&] {
        reached = directory.query_nodes();
        return !reached || (directory.all_nodes_beyond(&Progress::horizon, sequence) &&
                            horizon(job_.store()) > sequence);
    });
    return reached;
}

// Waits until on all nodes the data of all records up to `sequence` are in the file system or, with
// Push::sync, on its medium. Returns false if a node does not answer or a file cannot be written.
// The whole job's must also be resolved. A rank that resolves conflicts does not wait for that: two
// whose last attempt has failed would wait for each other, and it writes what wins by itself.
bool ConflictResolver::wait_until_pushed(Push push, std::uint64_t sequence, bool whole_job) {
    const auto member = push != Push::sync ? &Progress::drained
                        : whole_job        ? &Progress::durable
                                           : &Progress::synced;
    auto& directory = job_.directory();
    const Store& store = job_.store();
    FailingWait wait(store.now(), last_wait_failed_ ? shortest_further_wait_ns : shortest_wait_ns);
    std::uint64_t push_at = 0;
    bool possible = true;
    wait_until([&] {
        const bool pushes = store.now() >= push_at;
        if (pushes) push_at = store.now() + push_period_ns;
        const Push now = pushes ? push : Push::none;
        store.request_drain();
        if (now == Push::sync) store.request_sync();
        possible = whole_job ? directory.query_all_nodes(now) : directory.query_nodes(now);
        const Progress local_progress = progress(store);
        auto failing = directory.retries_of_failing_nodes(whole_job);
        if (local_progress.failed || (whole_job && local_progress.unresolved))
            failing.emplace(this_node, local_progress.retries);
        possible = possible && !wait.is_over(store.now(), failing);
        last_wait_failed_ = !possible;
        return !possible || (directory.all_nodes_beyond(member, sequence, whole_job) &&
                             local_progress.drained > sequence &&
                             (!whole_job || local_progress.*member > sequence));
    });
    return possible;
}

// Writes the pieces that are not settled into their files, and calls fsync in one step with that:
// what was durable before is on the medium again afterwards. Returns false on an error.
bool ConflictResolver::rewrite(std::vector<Piece> pieces) {
    const Store& store = job_.store();
    std::erase_if(pieces, [&](const Piece& piece) {
        return piece.sequence < store.file(piece.file).settled.load();
    });
    if (!copy_data_of_others(pieces)) return false;
    std::ranges::sort(pieces, {},
                      [](const Piece& piece) { return std::pair(piece.file, piece.begin); });
    bool succeeded = true;
    for (auto first = pieces.begin(); first != pieces.end();) {
        const auto end = std::find_if(
            first, pieces.end(), [&](const Piece& piece) { return piece.file != first->file; });
        int error = 0;
        if (const auto descriptor = job_.handles().open_for_writing(first->file, error)) {
            const int fd = descriptor->number();
            const auto write_pieces = [&] {
                std::vector<storage::Piece> writes;
                for (auto piece = first; piece != end; ++piece)
                    writes.push_back({piece->file, piece->rank, piece->begin, piece->end,
                                      piece->copy.empty()
                                          ? store.data(piece->rank, piece->ring_offset)
                                          : piece->copy.data(),
                                      piece->sequence});
                WriteQueue queue(store);
                queue.add(descriptor, writes.data(), writes.size());
                queue.run(1);
                return queue.error(0);
            };
            error = job_.drain().sync(first->file, fd, write_pieces).fsync_error;
            note_modified(store, first->file, fd);
        }
        succeeded &= !error;
        first = end;
    }
    return succeeded;
}

bool ConflictResolver::resolve(std::uint64_t from, std::uint64_t end_record, Push push,
                               std::vector<Piece>& rewritten) {
    auto& head = job_.store().head(job_.local_rank());
    auto& directory = job_.directory();
    std::uint64_t newest = 0, oldest = ~0ull;
    for (std::uint64_t k = from; k < end_record; ++k) {
        newest = std::max(newest, job_.store().record(job_.local_rank(), k).sequence);
        oldest = std::min(oldest, job_.store().record(job_.local_rank(), k).sequence);
    }
    is_in_contact_ = wait_until_published(newest);
    if (!is_in_contact_) return false;
    directory.scan_node(true);
    const bool of_all = push == Push::sync;
    if (newest_pieces(from, end_record, of_all).empty()) {
        note_resolved(end_record);
        return true;
    }
    // With Push::sync no node is left afterwards that can repeat older writes. Else a node whose
    // file cannot be written may have published its older bytes as superseded: then this is their
    // last write, so it takes place all the same.
    const bool are_pushed = wait_until_pushed(push, newest, false);
    // From here on other ranks that resolve conflicts wait for this one. They resolve conflicts
    // with their later writes themselves.
    if (are_pushed || !of_all) head.resolving.store(oldest, std::memory_order_seq_cst);
    const std::uint64_t unresolved = head.unresolved.load();
    head.unresolved = unresolved ? std::min(unresolved, oldest) : oldest;
    unresolved_before_ = std::max(unresolved_before_, end_record);
    if (!are_pushed && of_all) return false;
    is_in_contact_ = directory.query_nodes();
    if (!is_in_contact_) return false;
    directory.scan_node(true);
    const Writer::Hold hold(job_.writer());  // the pieces are written from the ring
    rewritten = newest_pieces(std::max(from, head.first_record.load()), end_record, of_all);
    if (!rewrite(rewritten)) return false;
    note_resolved(end_record);
    return are_pushed;
}

// Notes that the bytes of records before `end_record` that win are on the medium. An attempt that
// has failed may have been for more.
void ConflictResolver::note_resolved(std::uint64_t end_record) {
    if (end_record < unresolved_before_) return;
    unresolved_before_ = 0;
    job_.store().head(job_.local_rank()).unresolved = 0;
}

bool ConflictResolver::resolve(std::uint64_t end_record, Push push) {
    if (!job_.directory().has_shared_files()) return true;
    const ResolvingScope resolving_scope(job_);
    std::vector<Piece> rewritten;
    if (!resolve(
            std::max(resolved_before_, job_.store().head(job_.local_rank()).first_record.load()),
            end_record, push, rewritten))
        return false;
    resolved_before_ = std::max(resolved_before_, end_record);
    return true;
}

std::uint64_t ConflictResolver::prepare_eviction(std::uint64_t first, std::uint64_t end) {
    if (!job_.directory().has_shared_files()) return end;
    // Tries fewer records if they need more tombstones than can be published at a time.
    for (std::uint64_t end_record = end; end_record > first;
         end_record = first + (end_record - first) / 2) {
        const ResolvingScope resolving_scope(job_);
        std::vector<Piece> rewritten;
        if (!resolve(first, end_record, Push::sync, rewritten)) return first;
        if (publish_tombstones(rewritten, first, end_record)) return end_record;
    }
    return first;
}

// Publishes tombstones for the rewritten pieces. Publishes the tombstones among the evicted records
// [first, end) again if a node may still need them. Returns false if there are too many.
bool ConflictResolver::publish_tombstones(const std::vector<Piece>& pieces, std::uint64_t first,
                                          std::uint64_t end) {
    const Store& store = job_.store();
    RangeRecords of_pieces(RecordKind::tombstone);
    for (const auto& piece : pieces)
        if (piece.rank == job_.local_rank())
            of_pieces.add(piece.file, piece.generation, piece.sequence, piece.begin, piece.end);
    std::vector<Record>& tombstones = of_pieces.records();
    const std::uint64_t oldest_local = oldest_except(store, job_.local_rank());
    for (std::uint64_t k = first; k < end; ++k) {
        Record old = store.record(job_.local_rank(), k);
        const bool obsolete = oldest_local > old.sequence &&
                              job_.directory().all_nodes_beyond(&Progress::oldest, old.sequence);
        if (static_cast<RecordKind>(old.kind) != RecordKind::tombstone || obsolete) continue;
        old.ring_offset = 0;
        tombstones.push_back(old);
    }
    if (tombstones.size() >
        std::min(job_.writer().reserved_records(), job_.writer().free_records()))
        return false;
    if (!tombstones.empty()) job_.writer().publish(tombstones.data(), tombstones.size());
    return true;
}

}  // namespace assay::storage
