// The directory of writes: which rank wrote which bytes of each file, as far as this process knows.
// It scans the records of its own node in the store, and asks other nodes for theirs. The caller
// holds Job::lock().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/accelerator/sequence_table.hpp"
#include "storage/accelerator/service.hpp"
#include "storage/store/index.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

class Job;

// An index identifies ranks of other nodes by their world rank with this bit, and ranks of this
// node by their number on the node.
constexpr std::uint32_t remote_rank_bit = 1u << 31;

// The slot in which a node has a file, and what it knows of it (FileSlot). Nodes exchange it.
struct SlotOfNode {
    std::uint32_t slot, generation;
    std::uint64_t valid_from;
};

class WriteDirectory {
public:
    explicit WriteDirectory(Job& job);

    // Adds the new records of all ranks of this node, or (`all` is false) of this rank only.
    void scan_node(bool all);
    // Adds the new records of other nodes, if this process has communicated (visibility
    // `immediate`) or synchronized (others) since the last call. Returns false if a node cannot be
    // reached.
    bool refresh_remote();
    // The ranks have synchronized: the next refresh_remote() asks the other nodes.
    void note_synchronization();
    // Asks these nodes for new records and their progress. Afterwards this node's clock is ahead of
    // theirs, and theirs are not behind the time of the request (L. Lamport, Time, clocks, and the
    // ordering of events, 1978).
    bool query_nodes(Push push = Push::none);
    // The same for all nodes of the job, whether they share a file with this process or not.
    bool query_all_nodes(Push push);
    // Whether a member of the last known progress is above `sequence` on all other nodes
    // that share files with this process, or (`whole_job`) on all of the job.
    bool all_nodes_beyond(std::uint64_t Progress::* member, std::uint64_t sequence,
                          bool whole_job = false) const;
    // How often each of the other nodes has repeated its failed writes that cannot write a file
    // which they share: of those that share files with this process, or (`whole_job`) of all, where
    // one with unresolved conflicts counts too.
    std::map<int, std::uint64_t> retries_of_failing_nodes(bool whole_job) const;

    // The writes of all ranks.
    Index& all_writes(std::uint32_t slot) { return entry_of(slot).all_writes; }
    // The writes of all other ranks; filled for files that other nodes have open too.
    Index& writes_of_others(std::uint32_t slot) { return entry_of(slot).writes_of_others; }
    // The end of the furthest write of another node.
    std::uint64_t remote_end(std::uint32_t slot) { return entry_of(slot).end; }
    // Call it when the file is opened: drops what is known of it if the slot has another file by
    // now or FileSlot::valid_from has changed, and lets the next calls scan and ask for all records
    // again.
    void check(std::uint32_t slot) { entry_of(slot); }
    // Notes that another node has the file of this slot open too, as `remote`.
    void add_remote_slot(std::uint32_t slot, int node, const SlotOfNode& remote);
    // Whether the record of another node's rank was durable when the node was asked last.
    bool is_durable(int world_rank, std::uint64_t sequence) const;
    bool is_shared(std::uint32_t slot) const { return shared_slots_.count(slot); }
    // Whether this process knows the file's slots on all other nodes of the job.
    bool knows_all_slots(std::uint32_t slot) const;
    bool has_shared_files() const { return !sharing_nodes_.empty(); }
    // A sequence: some older records of this node were evicted before this process had scanned
    // them, so older data are read from the file system.
    std::uint64_t evicted_before() const { return evicted_before_; }

private:
    struct FileEntry {
        std::uint32_t generation;
        std::uint64_t valid_from;
        Index all_writes, writes_of_others;
        std::uint64_t end = 0;
        std::unordered_map<std::uint32_t, SequenceTable>
            sequence_tables{};  // of records that lie on other nodes, by their rank
        // Numbers of known records: by rank of this node, and of other nodes by world rank.
        std::vector<std::uint64_t> scanned{};
        std::map<std::uint32_t, std::uint64_t> received{};
    };
    struct RemoteSlot {
        std::uint32_t generation, slot;
        std::uint64_t valid_from;  // there
    };

    FileEntry& entry_of(std::uint32_t slot);
    void forget_writes(std::uint32_t slot);
    void note_truncated(std::uint32_t slot, FileEntry& entry) const;
    WriteSequence sequence_of(std::uint32_t slot, const Run& run, std::uint64_t block);
    WriteSequence sequence_of_evicted(std::uint32_t slot, const Run& run) const;
    void drop_evicted_sequences();
    bool query(const std::set<int>& nodes, Push push);
    void add_remote(int node, std::uint32_t rank, std::uint64_t position, Record record,
                    const Progress& progress);

    Job& job_;
    std::vector<std::uint64_t> scanned_;  // number of scanned records, by rank of this node
    bool scans_again_ = false;            // the next scan begins with the oldest records
    std::set<int> asked_again_;           // nodes whose records must be asked for again
    // Slots of other nodes whose records have arrived before this process knew the file, with their
    // generation: by node and slot there.
    std::map<std::pair<int, std::uint32_t>, std::uint32_t> ignored_;
    std::uint64_t evicted_before_ = 0;
    std::unordered_map<std::uint32_t, FileEntry> entries_;
    std::map<std::pair<int, std::uint32_t>, RemoteSlot> remote_slots_;    // by node and slot there
    std::map<std::pair<int, std::uint32_t>, std::uint32_t> world_ranks_;  // by node and local rank
    std::set<std::uint32_t> shared_slots_;  // slots of files that other nodes have open
    std::set<int> sharing_nodes_;           // nodes that have such a file open
    std::map<int, Progress> progress_;      // by node
    std::uint64_t synchronizations_ = 0, last_epoch_ = 0;
};

}  // namespace assay::storage
