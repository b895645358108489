// Keeps an index of the writes of each file (store/index.hpp) up to date: scans the rings of this
// node, and asks other nodes for their new records.
#include "storage/accelerator/write_directory.hpp"

#include <algorithm>
#include <atomic>

#include "storage/accelerator/comm_epoch.hpp"
#include "storage/accelerator/job.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {

WriteDirectory::WriteDirectory(Job& job) : job_(job), scanned_(job.store().ranks()) {
    // Records that an earlier job has evicted from a kept store need not be known: see
    // invalidate_stale_files().
    for (std::uint32_t rank = 0; rank < job.store().ranks(); ++rank)
        scanned_[rank] = job.store().head(rank).first_record.load();
    for (int rank = 0; rank < job.size(); ++rank)
        if (job.node_of(rank) != job.node())
            world_ranks_[{job.node_of(rank), job.local_rank_of(rank)}] =
                static_cast<std::uint32_t>(rank);
}

// ---- files

WriteDirectory::FileEntry& WriteDirectory::entry_of(std::uint32_t slot) {
    const auto& file = job_.store().file(slot);
    const std::uint32_t generation = file.generation.load();
    const std::uint64_t valid_from = file.valid_from.load();
    const auto known = entries_.find(slot);
    if (known != entries_.end() && known->second.generation == generation &&
        known->second.valid_from == valid_from)
        return known->second;
    const auto sequence_at = [this, slot](const Run& run, std::uint64_t block) {
        return sequence_of(slot, run, block);
    };
    FileEntry nothing{generation, valid_from, Index(sequence_at), Index(sequence_at)};
    if (known == entries_.end()) return entries_.emplace(slot, std::move(nothing)).first->second;
    // Assigned, not replaced: callers hold references to its indexes.
    known->second = std::move(nothing);
    scans_again_ = true;
    if (is_shared(slot)) asked_again_ = sharing_nodes_;
    return known->second;
}

// Lets the next entry_of() find that nothing is known of the file's writes.
void WriteDirectory::forget_writes(std::uint32_t slot) {
    const auto entry = entries_.find(slot);
    if (entry != entries_.end()) entry->second.generation = 0;
}

// The sequence of a block in a run of many records: from a ring of this node, or from the table of
// records that other nodes have sent.
WriteSequence WriteDirectory::sequence_of(std::uint32_t slot, const Run& run, std::uint64_t block) {
    const std::uint64_t position = run.first_record + block;
    const Store& store = job_.store();
    if (run.rank & remote_rank_bit) {
        const auto sequence = entries_.at(slot).sequence_tables[run.rank].find(position);
        return sequence ? *sequence : sequence_of_evicted(slot, run);
    }
    const std::uint64_t sequence = store.record(run.rank, position).sequence;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (position < store.head(run.rank).first_record.load()) return sequence_of_evicted(slot, run);
    return sequence;
}

// What an evicted record is compared with. The file has its data. If only this node writes the
// file, another write is newer than it if it is not durable; if it is, the file has the newest of
// both.
WriteSequence WriteDirectory::sequence_of_evicted(std::uint32_t slot, const Run& run) const {
    if (is_shared(slot)) return {run.newest, false};
    const std::uint64_t durable = job_.store().file(slot).durable.load();
    return {std::clamp(durable - std::min<std::uint64_t>(durable, 1), run.oldest, run.newest),
            false};
}

void WriteDirectory::add_remote_slot(std::uint32_t slot, int node, const SlotOfNode& remote) {
    RemoteSlot& known = remote_slots_[{node, remote.slot}];
    // Its ranks may have looked at different times.
    const std::uint64_t valid_from = known.generation == remote.generation
                                         ? std::max(known.valid_from, remote.valid_from)
                                         : remote.valid_from;
    if (known.generation != remote.generation || known.valid_from != valid_from || !is_shared(slot))
        forget_writes(slot);
    known = {remote.generation, slot, valid_from};
    const auto ignored = ignored_.find({node, remote.slot});
    if (ignored != ignored_.end() && ignored->second == remote.generation) {
        asked_again_.insert(node);
        ignored_.erase(ignored);
    }
    sharing_nodes_.insert(node);
    shared_slots_.insert(slot);
}

// A handle has truncated the file that this process or this node may not have open.
void WriteDirectory::note_truncated(std::uint32_t slot, FileEntry& entry) const {
    entry.end = std::min(entry.end, entry.all_writes.end());
    lower_end(job_.store(), slot);
}

// The file has newer bytes than this write, which has newer ones than others before it: also than
// some of another node that are not outdated.
void leave_to_file_system(Record& record) {
    if (static_cast<RecordKind>(record.kind) == RecordKind::data)
        record.kind = static_cast<std::uint64_t>(RecordKind::tombstone);
}

// ---- this node

void WriteDirectory::scan_node(bool all) {
    const Store& store = job_.store();
    bool missed_evicted = false;
    if (scans_again_) {
        for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
            scanned_[rank] = std::min(scanned_[rank], store.head(rank).first_record.load());
        scans_again_ = false;
    }
    for (std::uint32_t rank = all ? 0 : job_.local_rank();
         rank < (all ? store.ranks() : job_.local_rank() + 1); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        std::uint64_t& scanned = scanned_[rank];
        if (scanned == tail) continue;
        const std::uint64_t first = head.first_record.load(std::memory_order_acquire);
        missed_evicted |= first > scanned;
        scanned = std::max(scanned, first);
        for (; scanned < tail; ++scanned) {
            Record record = store.record(rank, scanned);
            std::atomic_thread_fence(std::memory_order_acquire);
            if (head.first_record.load(std::memory_order_acquire) >
                scanned) {  // it was evicted meanwhile
                missed_evicted = true;
                continue;
            }
            const auto& file = store.file(record.file);
            const bool is_outdated = record.sequence < file.valid_from.load();
            if (file.generation.load() != record.generation ||
                (is_outdated && !is_shared(record.file)))
                continue;
            if (is_outdated) leave_to_file_system(record);
            auto& entry = entry_of(record.file);
            entry.scanned.resize(store.ranks());
            if (scanned < entry.scanned[rank]) continue;  // scanned again for another file
            entry.scanned[rank] = scanned + 1;
            entry.all_writes.add(record, rank, scanned);
            if (static_cast<RecordKind>(record.kind) == RecordKind::truncate)
                note_truncated(record.file, entry);
            if (rank != job_.local_rank() && is_shared(record.file))
                entry.writes_of_others.add(record, rank, scanned);
        }
    }
    // The evicted records and all older ones of this node were drained.
    if (missed_evicted) evicted_before_ = progress(store).drained;
}

// ---- other nodes

void WriteDirectory::note_synchronization() {
    ++synchronizations_;
    advance_comm_epoch();
}

bool WriteDirectory::refresh_remote() {
    const std::uint64_t now =
        job_.settings().visibility == Visibility::immediate ? comm_epoch() : synchronizations_;
    if (now == last_epoch_ && asked_again_.empty()) return true;
    if (!query_nodes()) return false;
    last_epoch_ = now;
    return true;
}

bool WriteDirectory::query_nodes(Push push) { return query(sharing_nodes_, push); }

bool WriteDirectory::query_all_nodes(Push push) {
    std::set<int> nodes;
    for (int node = 0; node < job_.nodes(); ++node)
        if (node != job_.node()) nodes.insert(node);
    return query(nodes, push);
}

bool WriteDirectory::query(const std::set<int>& nodes, Push push) {
    if (nodes.empty()) return true;
    for (const int node : asked_again_) job_.remote()->forget_updates(node);
    asked_again_.clear();
    const bool succeeded = job_.remote()->fetch_updates(
        nodes, push,
        [this](int node, std::uint32_t rank, std::uint64_t position, const Record& record,
               const Progress& of_node) { add_remote(node, rank, position, record, of_node); },
        progress_);
    for (const auto& [node, progress] : progress_) job_.store().advance_clock(progress.now + 1);
    drop_evicted_sequences();
    return succeeded;
}

// Drops the sequences of records that were evicted from the rings of other nodes. sequence_of()
// then treats them like evicted records of this node.
void WriteDirectory::drop_evicted_sequences() {
    for (auto& [slot, entry] : entries_)
        for (auto& [rank, table] : entry.sequence_tables)
            if (const auto it =
                    progress_.find(job_.node_of(static_cast<int>(rank & ~remote_rank_bit)));
                it != progress_.end())
                table.drop_before(it->second.oldest);
}

void WriteDirectory::add_remote(int node, std::uint32_t rank, std::uint64_t position, Record record,
                                const Progress& of_node) {
    const auto it = remote_slots_.find({node, record.file});
    if (it == remote_slots_.end() || it->second.generation != record.generation) {
        ignored_[{node, record.file}] = record.generation;
        return;
    }
    const std::uint32_t slot = it->second.slot;
    // Only data that are durable there are outdated by a change of the file: see
    // FileSlot::valid_from.
    const bool is_outdated =
        record.sequence <
        std::max(it->second.valid_from,
                 std::min(job_.store().file(slot).valid_from.load(), of_node.durable));
    const std::uint32_t world_rank = world_ranks_.at({node, rank});
    auto& entry = entry_of(slot);
    auto& received = entry.received[world_rank];
    if (position < received) return;  // received again
    received = position + 1;
    if (static_cast<RecordKind>(record.kind) == RecordKind::superseded)
        return;  // of that node only
    if (is_outdated) leave_to_file_system(record);
    else entry.sequence_tables[world_rank | remote_rank_bit].add(position, record.sequence);
    entry.all_writes.add(record, world_rank | remote_rank_bit, position);
    entry.writes_of_others.add(record, world_rank | remote_rank_bit, position);
    if (static_cast<RecordKind>(record.kind) == RecordKind::truncate)
        return note_truncated(slot, entry);
    if (is_outdated) return;
    const std::uint64_t end = record.begin + (record.count - 1) * record.stride + record.length;
    entry.end = std::max(entry.end, entry.all_writes.end_of(record.sequence, end));
}

bool WriteDirectory::is_durable(int world_rank, std::uint64_t sequence) const {
    const auto progress = progress_.find(job_.node_of(world_rank));
    return progress != progress_.end() && progress->second.durable > sequence;
}

bool WriteDirectory::knows_all_slots(std::uint32_t slot) const {
    std::set<int> nodes;
    for (const auto& [place, remote] : remote_slots_)
        if (remote.slot == slot) nodes.insert(place.first);
    return static_cast<int>(nodes.size()) == job_.nodes() - 1;
}

bool WriteDirectory::all_nodes_beyond(std::uint64_t Progress::* member, std::uint64_t sequence,
                                      bool whole_job) const {
    return std::all_of(progress_.begin(), progress_.end(), [&](const auto& of_node) {
        const auto& [node, progress] = of_node;
        return (!whole_job && !sharing_nodes_.contains(node)) || progress.*member > sequence;
    });
}

std::map<int, std::uint64_t> WriteDirectory::retries_of_failing_nodes(bool whole_job) const {
    std::map<int, std::uint64_t> retries;
    for (const auto& [node, progress] : progress_)
        if (whole_job ? progress.failed || progress.unresolved
                      : progress.failed && sharing_nodes_.contains(node))
            retries.emplace(node, progress.retries);
    return retries;
}

}  // namespace assay::storage
