// What this process knows of who wrote what: its own ranks' records and its node's by looking at
// the store, other nodes' by asking. Everything is under the job's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/store/index.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

class Job;

// Ranks of other nodes are known to an index by their world rank with this bit; those of this node
// by their place in it.
constexpr std::uint32_t elsewhere = 1u << 31;

class Knowledge {
public:
    explicit Knowledge(Job& job);

    // Takes in what the ranks of this node have published since; or this rank alone.
    void look_here(bool all);
    // Takes in what ranks of other nodes have published: where that is to be seen at once, if this
    // process has heard of anyone since it last asked (what nobody can have told it of, it need not
    // know); else after a `moment`. False: a node cannot be reached.
    bool look_elsewhere();
    // Ranks have met: what they wrote before is to be known now.
    void moment();
    // Asks in any case, also how far the nodes are (`far_enough`). This node's clock is past theirs
    // then, and theirs not behind it (L. Lamport, Time, clocks, and the ordering of events, 1978).
    // In a hurry: they are to drain at once.
    bool ask(bool hurry = false);
    // Whether on all other nodes, when they were last asked, one figure of their progress was
    // beyond `sequence`.
    bool far_enough(std::uint64_t Progress::* figure, std::uint64_t sequence) const;
    bool drain_failed_elsewhere() const;

    // Who has each byte of a file.
    Index& index(std::uint32_t slot) { return known(slot).index; }
    // Who but this rank; of files that are shared with other nodes.
    Index& others(std::uint32_t slot) { return known(slot).others; }
    // Until where other nodes have written.
    std::uint64_t end_elsewhere(std::uint32_t slot) { return known(slot).end; }
    // From `sequence` on the file is so large.
    void cut(std::uint32_t slot, std::uint64_t sequence, std::uint64_t size);
    // A file's slot here, and on another node where it is open.
    void share(std::uint32_t slot, int node, std::uint32_t slot_there,
               std::uint32_t generation_there);
    bool shared(std::uint32_t slot) const { return shared_.count(slot); }
    bool any_shared() const { return !nodes_.empty(); }
    // Records of this node gave way before they were looked at: what is older than this is to be
    // read from the file.
    std::uint64_t missed() const { return missed_; }

private:
    struct Times {
        std::vector<std::uint64_t> positions, sequences;
    };
    struct Known {
        std::uint32_t generation;
        std::uint64_t valid_from;
        Index index, others;
        std::uint64_t end = 0;
        std::uint64_t cut_at = 0, cut_to = 0;  // sequence, size
        std::unordered_map<std::uint32_t, Times>
            times;  // of records that lie on other nodes, by their rank
    };
    struct There {
        std::uint32_t generation, slot;
    };

    Known& known(std::uint32_t slot);
    std::uint64_t sequence_of(std::uint32_t slot, const Run& run, std::uint64_t block);
    void told(int node, std::uint32_t rank, std::uint64_t position, const Record& record);

    Job& job_;
    std::vector<std::uint64_t> seen_;  // by rank of this node
    std::uint64_t missed_ = 0;
    std::unordered_map<std::uint32_t, Known> known_;
    std::map<std::pair<int, std::uint32_t>, There> there_;  // by node and slot there
    std::map<std::pair<int, std::uint32_t>, std::uint32_t> world_ranks_;
    std::map<std::uint32_t, std::uint64_t> seen_elsewhere_;  // by world rank
    std::set<std::uint32_t> shared_;                         // slots of files
    std::set<int> nodes_;                                    // with which they are shared
    std::map<int, Progress> progress_;
    std::uint64_t moments_ = 0, heard_ = 0;
};

}  // namespace assay::storage
