// Compares this rank's records with those of other nodes, and publishes superseded records
// (superseded.hpp).
#include "storage/accelerator/superseded.hpp"

#include <algorithm>
#include <map>

#include "storage/accelerator/job.hpp"
#include "storage/accelerator/range_records.hpp"

namespace assay::storage {
namespace {

bool has_writes_of_others(Job& job, std::uint32_t slot) {
    auto& directory = job.directory();
    if (!directory.is_shared(slot)) return false;
    const Index& others = directory.writes_of_others(slot);
    return others.runs() || others.extents();
}

class Search {
public:
    explicit Search(Job& job) : job_(job) {}

    // The records that are missing in this rank's ring for its data of the slot's file.
    std::vector<Record>& run(std::uint32_t slot);

private:
    void note_published(const Record& record);
    void search_record(const Record& record);
    void search_block(const Record& record, std::uint64_t begin);
    Index& known(std::uint32_t slot);

    Job& job_;
    // What is published, by slot: the newest writes of other nodes over this rank's data.
    std::map<std::uint32_t, Index> known_;
    RangeRecords missing_{RecordKind::superseded};
};

Index& Search::known(std::uint32_t slot) {
    const auto exact = [](const Run& run, std::uint64_t) { return run.newest; };
    return known_.try_emplace(slot, exact).first->second;
}

// A tombstone in an index says that a write of that sequence is elsewhere.
void Search::note_published(const Record& record) {
    Record write = record;
    write.kind = static_cast<std::uint64_t>(RecordKind::tombstone);
    known(record.file).add(write, job_.local_rank(), 0);
}

std::vector<Record>& Search::run(std::uint32_t slot) {
    const Store& store = job_.store();
    const auto& head = store.head(job_.local_rank());
    const std::uint64_t first = head.first_record.load(), tail = head.tail.load();
    const auto is_searched = [&](const Record& record) {
        return (slot == all_files || record.file == slot) &&
               store.file(record.file).generation.load() == record.generation;
    };
    for (std::uint64_t k = first; k < tail; ++k)
        if (const Record& record = store.record(job_.local_rank(), k);
            static_cast<RecordKind>(record.kind) == RecordKind::superseded && is_searched(record))
            note_published(record);
    for (std::uint64_t k = first; k < tail; ++k)
        if (const Record& record = store.record(job_.local_rank(), k);
            static_cast<RecordKind>(record.kind) == RecordKind::data && is_searched(record))
            search_record(record);
    return missing_.records();
}

void Search::search_record(const Record& record) {
    const auto& slot = job_.store().file(record.file);
    if (slot.deleted.load() || record.sequence < slot.settled.load() ||
        !has_writes_of_others(job_, record.file))
        return;
    for (std::uint64_t block = 0; block < record.count; ++block)
        search_block(record, record.begin + block * record.stride);
}

// Only writes whose sequence is certain count: data must not be left out for older ones.
void Search::search_block(const Record& record, std::uint64_t begin) {
    Index& others = job_.directory().writes_of_others(record.file);
    const std::uint64_t end = begin + record.length;
    for (std::uint64_t offset = begin; offset < end;) {
        const Lookup other = others.find_certain(offset, end);
        const bool is_local = other.rank < job_.store().ranks();
        if (!other.has_data || other.sequence <= record.sequence || is_local) {
            offset = other.end;
            continue;
        }
        const Lookup published = known(record.file).find(offset, other.end);
        if (!published.has_data || published.sequence <= record.sequence) {
            missing_.add(record.file, record.generation, other.sequence, offset, published.end);
            known(record.file)
                .add({offset, published.end - offset, published.end - offset, 1, 0, 0,
                      other.sequence, other.sequence, file_system_rank, 1});
        }
        offset = published.end;
    }
}

}  // namespace

bool publish_superseded(Job& job, std::uint32_t slot) {
    auto& directory = job.directory();
    if (!directory.has_shared_files()) return true;
    if (!directory.query_nodes()) return false;
    directory.scan_node(true);
    if (slot != all_files && !has_writes_of_others(job, slot)) return true;
    Search search(job);
    std::vector<Record>& records = search.run(slot);
    if (records.empty()) return true;
    // Half of the reserve is left to tombstones.
    if (records.size() + job.writer().reserved_records() / 2 > job.writer().free_records())
        return false;
    const Store& store = job.store();
    std::uint64_t newest = 0;
    for (const Record& record : records) {
        auto& file = store.file(record.file);
        newest = std::max(newest, record.sequence);
        if (file.superseded.exchange(1)) continue;
        store.persist(&file, 3 * cache_line);
    }
    store.advance_clock(newest + 1);  // records of the future would not be drained
    job.writer().publish(records.data(), records.size());
    job.drain().wait_for_running_writes();
    return true;
}

}  // namespace assay::storage
