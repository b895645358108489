#include "storage/accelerator/knowledge.hpp"

#include <algorithm>
#include <atomic>

#include "storage/accelerator/heard.hpp"
#include "storage/accelerator/job.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {

Knowledge::Knowledge(Job& job) : job_(job), seen_(job.store().ranks()) {
    for (int rank = 0; rank < job.size(); ++rank)
        if (job.node_of(rank) != job.node())
            world_ranks_[{job.node_of(rank), job.local_of(rank)}] =
                static_cast<std::uint32_t>(rank);
}

// ---- files

Knowledge::Known& Knowledge::known(std::uint32_t slot) {
    const auto& file = job_.store().file(slot);
    const std::uint32_t generation = file.generation.load();
    const std::uint64_t valid_from = file.forget_before.load();
    auto found = known_.find(slot);
    if (found == known_.end()) {
        const auto when = [this, slot](const Run& run, std::uint64_t block) {
            return sequence_of(slot, run, block);
        };
        found =
            known_
                .emplace(slot, Known{generation, valid_from, Index(when), Index(when), 0, 0, 0, {}})
                .first;
    }
    auto& known = found->second;
    if (known.generation != generation || known.valid_from != valid_from) {
        known.index.clear();
        known.others.clear();
        known.times.clear();
        known.end = known.cut_at = 0;
        known.generation = generation;
        known.valid_from = valid_from;
    }
    return known;
}

// Of a block whose record is one of many of its run: in the ring still, or noted when it was told.
std::uint64_t Knowledge::sequence_of(std::uint32_t slot, const Run& run, std::uint64_t block) {
    const std::uint64_t position = run.record + block;
    if (!(run.rank & elsewhere)) {
        const Store& store = job_.store();
        return position < store.head(run.rank).first_record.load()
                   ? run.newest
                   : store.record(run.rank, position).sequence;
    }
    const auto& times = known_.at(slot).times[run.rank];
    const auto at = std::lower_bound(times.positions.begin(), times.positions.end(), position);
    return at == times.positions.end() || *at != position
               ? run.newest
               : times.sequences[static_cast<std::size_t>(at - times.positions.begin())];
}

void Knowledge::share(std::uint32_t slot, int node, std::uint32_t slot_there,
                      std::uint32_t generation_there) {
    there_[{node, slot_there}] = {generation_there, slot};
    nodes_.insert(node);
    shared_.insert(slot);
}

void Knowledge::cut(std::uint32_t slot, std::uint64_t sequence, std::uint64_t size) {
    auto& of = known(slot);
    of.cut_at = sequence;
    of.cut_to = of.end = size;
}

// ---- this node

void Knowledge::look_here(bool all) {
    const Store& store = job_.store();
    bool missed = false;
    for (std::uint32_t rank = all ? 0 : job_.local();
         rank < (all ? store.ranks() : job_.local() + 1); ++rank) {
        const auto& head = store.head(rank);
        const std::uint64_t tail = head.tail.load(std::memory_order_acquire);
        std::uint64_t& seen = seen_[rank];
        if (seen == tail) continue;
        const std::uint64_t first = head.first_record.load(std::memory_order_acquire);
        missed |= first > seen;
        seen = std::max(seen, first);
        for (; seen < tail; ++seen) {
            const Record record = store.record(rank, seen);
            std::atomic_thread_fence(std::memory_order_acquire);
            if (head.first_record.load(std::memory_order_acquire) >
                seen) {  // it has given way meanwhile
                missed = true;
                continue;
            }
            const auto& file = store.file(record.file);
            if (file.generation.load() != record.generation ||
                record.sequence < file.forget_before.load())
                continue;
            auto& of = known(record.file);
            of.index.add(record, rank, seen);
            if (rank != job_.local() && shared(record.file)) of.others.add(record, rank, seen);
        }
    }
    // What has given way was in the file by then, with all of this node that is older.
    if (missed) missed_ = progress(store).drained;
}

// ---- other nodes

void Knowledge::moment() {
    ++moments_;
    hear();
}

bool Knowledge::look_elsewhere() {
    const std::uint64_t now =
        job_.settings().visibility == Visibility::immediate ? heard() : moments_;
    if (now == heard_) return true;
    if (!ask()) return false;
    heard_ = now;
    return true;
}

bool Knowledge::ask(bool hurry) {
    if (nodes_.empty()) return true;
    const bool good = job_.remote()->news(
        nodes_, hurry,
        [this](int node, std::uint32_t rank, std::uint64_t position, const Record& record) {
            told(node, rank, position, record);
        },
        progress_);
    for (const auto& [node, progress] : progress_) job_.store().no_earlier(progress.now + 1);
    return good;
}

void Knowledge::told(int node, std::uint32_t rank, std::uint64_t position, const Record& record) {
    const auto found = there_.find({node, record.file});
    if (found == there_.end() || found->second.generation != record.generation) return;
    const std::uint32_t slot = found->second.slot;
    if (record.sequence < job_.store().file(slot).forget_before.load()) return;
    const std::uint32_t who = world_ranks_.at({node, rank});
    auto& seen = seen_elsewhere_[who];
    if (position < seen) return;  // told anew over a new connection
    seen = position + 1;
    auto& of = known(slot);
    auto& times = of.times[who | elsewhere];
    times.positions.push_back(position);
    times.sequences.push_back(record.sequence);
    of.index.add(record, who | elsewhere, position);
    of.others.add(record, who | elsewhere, position);
    if (static_cast<Kind>(record.kind) == Kind::truncate) return;  // who cut it said so: `cut`
    const std::uint64_t end = record.begin + (record.count - 1) * record.stride + record.length;
    of.end = std::max(of.end, record.sequence < of.cut_at ? std::min(end, of.cut_to) : end);
}

bool Knowledge::far_enough(std::uint64_t Progress::* figure, std::uint64_t sequence) const {
    return std::all_of(progress_.begin(), progress_.end(),
                       [&](const auto& each) { return each.second.*figure > sequence; });
}

bool Knowledge::drain_failed_elsewhere() const {
    return std::any_of(progress_.begin(), progress_.end(),
                       [](const auto& each) { return each.second.failed != 0; });
}

}  // namespace assay::storage
