// Power-loss tests of a store on persistent memory. A random job writes, drains, truncates and
// deletes files, and another node overwrites some of its bytes. Before each cache-line write-back
// and each fence, a model (power_model.hpp) computes what a power failure at that moment would
// leave; the test recovers that store and compares the files. ASSAY_TEST_SEED=N repeats one seed.
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "power_model.hpp"
#include "power_store.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/recover.hpp"
#include "storage/store/writer.hpp"

using namespace assay::storage;

namespace {

// The expected contents of a file: each word is the number of the write that has written it.
struct TargetFile {
    std::size_t file;  // in the file system
    std::uint32_t slot, generation;
    std::vector<std::uint64_t> words;
};

// An operation that has not returned yet: its effect may be in the file or not.
struct Unfinished {
    enum class Kind { write, truncate, remove } kind;
    std::size_t file;
    std::vector<std::size_t> words;  // of a write
    std::uint64_t value;             // of a write; of a truncation: the size in words
};

class Workload {
public:
    Workload(const fs::path& folder, std::uint64_t seed)
        : seed_(seed),
          small_writes_(seed % 2),
          random_(seed),
          store_(create_small_store(folder / "store")),
          crashed_(folder / "crashed", store_->superblock().bytes),
          files_(folder / "files", failure_random_),
          medium_(reinterpret_cast<char*>(&store_->superblock()), store_->superblock().bytes,
                  failure_random_),
          handles_(*store_),
          drain_(*store_, handles_, 1) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            writers_[rank] = std::make_unique<Writer>(*store_, rank);
        medium_.add(0, superblock_bytes);
        medium_.add(StoreLayout::files_offset(), modelled_slots * sizeof(FileSlot));
        medium_.add(StoreLayout::ranks_offset(),
                    store_->layout().bytes() - StoreLayout::ranks_offset());
        medium_.at_crash_point = [this] {
            lose_power();
            if (seed_ % 4 < 2) medium_.evict_lines();
        };
    }

    // Runs random operations. Returns the first problem that was found after a power failure; empty
    // if there was none.
    const std::string& run(int operations) {
        for (int k = 0; k < operations && problem_.empty(); ++k) {
            store_->note_alive();  // as the drain's thread does twice a second
            run_random_operation();
            lose_power();
        }
        return problem_;
    }
    std::size_t power_failures() const { return power_failures_; }

private:
    void run_random_operation() {
        const auto choice = random_() % 100;
        if (targets_.size() < 3) return create();
        const std::size_t chosen = random_() % targets_.size();
        if (choice < 60) write(targets_[chosen]);
        else if (choice < 72) drain_all();
        else if (choice < 75) write_many(targets_[chosen]);
        else if (choice < 83) sync(targets_[chosen]);
        else if (choice < 86) truncate(targets_[chosen]);
        else if (choice < 88) overwrite_from_another_node(targets_[chosen]);
        else if (choice < 89) reopen(targets_[chosen]);
        else if (choice < 96) remove(chosen);
        else write_with_errors(targets_[chosen]);
    }

    void create() {
        std::string name = "f" + std::to_string(random_() % 6);
        for (const auto& target : targets_)
            if (files_.path(target.file).ends_with(name)) return;
        operation_ = "create";
        TargetFile target{0, 0, 0, std::vector<std::uint64_t>(random_() % 600)};
        for (std::size_t k = 0; k < target.words.size(); ++k) target.words[k] = ~k;
        target.file = files_.create(name, as_bytes(target.words));
        FileStatus status;
        read_status(files_.descriptor(target.file), status);
        target.slot = acquire_slot(*store_, status, files_.path(target.file));
        if (target.slot == file_slots) {  // no slot is idle: next time
            files_.remove(target.file);
            drain_all();
            for (const auto& other : targets_) sync(other);
            return;
        }
        target.generation = store_->file(target.slot).generation;
        targets_.push_back(target);
    }

    void write(TargetFile& target) {
        const std::uint32_t rank = random_() % ranks;
        std::size_t blocks = 1 + (random_() % 3 == 0 ? random_() % 4 : 0);
        const std::size_t length = 1 + random_() % (small_writes_ || random_() % 2 ? 16 : 600),
                          begin = random_() % 3000, stride = length + random_() % 64;
        const std::size_t records = random_() % 4 == 0 ? blocks : 1;
        make_space(rank);
        operation_ = "write";
        std::uint64_t ring_offset = 0;
        const std::size_t bytes = blocks * length * word;
        if (bytes > writers_[rank]->max_bytes()) return;
        char* to = writers_[rank]->reserve(bytes, records, ring_offset);
        if (!to) return;  // its oldest data cannot be written
        unfinished_ = {Unfinished::Kind::write, target.file, {}, ++writes_};
        for (std::size_t k = 0; k < blocks; ++k)
            for (std::size_t i = 0; i < length; ++i)
                unfinished_->words.push_back(begin + k * stride + i);
        writers_[rank]->begin_write();
        for (std::size_t k = 0; k < blocks * length; ++k)
            std::memcpy(to + k * word, &writes_, word);
        std::vector<Record> list;
        for (std::size_t k = 0; k < records; ++k) {
            Record record{};
            record.file = target.slot, record.generation = target.generation;
            record.kind = static_cast<std::uint64_t>(RecordKind::data);
            record.begin = (begin + k * stride) * word;
            record.length = length * word, record.stride = stride * word;
            record.count = records == 1 ? blocks : 1;
            record.ring_offset = k * length * word;
            list.push_back(record);
        }
        writers_[rank]->publish(list.data(), list.size(), ring_offset, bytes);
        for (const auto k : unfinished_->words) {
            if (k >= target.words.size()) target.words.resize(k + 1);
            target.words[k] = writes_;
        }
        unfinished_.reset();
    }

    void write_many(TargetFile& target) {
        for (int k = 0; k < 30; ++k) write(target);
    }

    // Makes data durable if the rank's rings are nearly full: no drain runs in a thread here, so
    // reserve() would wait for ever.
    void make_space(std::uint32_t rank) {
        const auto& head = store_->head(rank);
        const auto& first = store_->record(rank, head.first_record);
        const bool few_records = head.tail - head.first_record + 8 > store_->layout().record_slots;
        const bool few_bytes =
            head.tail != head.first_record &&
            store_->record(rank, head.tail - 1).ring_offset - first.ring_offset + (12u << 10) >
                store_->layout().ring_bytes;
        if (!few_records && !few_bytes) return;
        drain_all();
        drain_.sync_all();
    }

    void drain_all() {
        operation_ = "drain";
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            drain_.finish(rank, store_->head(rank).tail);
    }

    void sync(const TargetFile& target) {
        operation_ = "sync";
        drain_.sync(target.slot, files_.descriptor(target.file));
    }

    // As AcceleratedFile::set_size(): drains, truncates the file, makes that durable, and publishes
    // a truncation record of each rank.
    void truncate(TargetFile& target) {
        const std::size_t size = random_() % 3000;
        if (size >= target.words.size()) return;
        drain_all();
        operation_ = "truncate";
        unfinished_ = {Unfinished::Kind::truncate, target.file, {}, size};
        REQUIRE(ftruncate(files_.descriptor(target.file), static_cast<off_t>(size * word)) == 0);
        note_modified(*store_, target.slot, files_.descriptor(target.file));
        CHECK(drain_.sync(target.slot, files_.descriptor(target.file)).error() == 0);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            make_space(rank);
            Record record{};
            record.file = target.slot, record.generation = target.generation;
            record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
            record.begin = size * word;
            std::uint64_t ring_offset = 0;
            REQUIRE(writers_[rank]->reserve(0, 1, ring_offset));
            writers_[rank]->begin_write();
            writers_[rank]->publish(&record, 1, ring_offset, 0);
        }
        target.words.resize(size);
        unfinished_.reset();
    }

    // As a conflict between nodes: the other node's data are in the file, each rank publishes that
    // its older bytes are superseded, and the other node writes its data again. Until then a drain
    // or recovery of this node may bring the older ones back.
    void overwrite_from_another_node(TargetFile& target) {
        const std::size_t length = 1 + random_() % 600, begin = random_() % 3000;
        operation_ = "publish superseded";
        unfinished_ = {Unfinished::Kind::write, target.file, {}, ++writes_};
        for (std::size_t k = 0; k < length; ++k) unfinished_->words.push_back(begin + k);
        const std::uint64_t sequence = store_->now();
        write_from_another_node(target, begin, length);
        auto& slot = store_->file(target.slot);
        slot.shared = slot.superseded = 1;
        store_->persist(&slot, 3 * cache_line);
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            publish_superseded(target, rank, sequence, begin, length);
        operation_ = "write of another node";
        write_from_another_node(target, begin, length);
        target.words.resize(std::max(target.words.size(), begin + length));
        for (std::size_t k = 0; k < length; ++k) target.words[begin + k] = writes_;
        unfinished_.reset();
    }

    // The data are at once on the disk.
    void write_from_another_node(const TargetFile& target, std::size_t begin, std::size_t length) {
        const std::vector<std::uint64_t> words(length, writes_);
        const int fd = files_.descriptor(target.file);
        REQUIRE(pwrite(fd, words.data(), length * word, static_cast<off_t>(begin * word)) ==
                static_cast<ssize_t>(length * word));
        REQUIRE(fsync(fd) == 0);
        lose_power();
    }

    void publish_superseded(const TargetFile& target, std::uint32_t rank, std::uint64_t sequence,
                            std::size_t begin, std::size_t length) {
        make_space(rank);
        Record record{};
        record.file = target.slot, record.generation = target.generation;
        record.kind = static_cast<std::uint64_t>(RecordKind::superseded);
        record.sequence = sequence;
        record.begin = begin * word;
        record.length = record.stride = length * word, record.count = 1;
        std::uint64_t ring_offset = 0;
        REQUIRE(writers_[rank]->reserve(0, 1, ring_offset));
        writers_[rank]->publish(&record, 1, ring_offset, 0);
    }

    void reopen(TargetFile& target) {
        drain_all();
        sync(target);
        operation_ = "reopen";
        FileStatus status;
        read_status(files_.descriptor(target.file), status);
        release_slot(*store_, target.slot, &status);
        CHECK(acquire_slot(*store_, status, files_.path(target.file)) == target.slot);
    }

    // As MPI_File_delete of a closed file, with or without its data in the file system.
    void remove(std::size_t chosen) {
        const TargetFile target = targets_[chosen];
        if (random_() % 2) drain_all(), sync(target);
        operation_ = "remove";
        unfinished_ = {Unfinished::Kind::remove, target.file, {}, 0};
        FileStatus status;
        read_status(files_.descriptor(target.file), status);
        release_slot(*store_, target.slot, &status);
        files_.remove(target.file);
        drop_deleted_file(*store_, status);
        targets_.erase(targets_.begin() + static_cast<std::ptrdiff_t>(chosen));
        unfinished_.reset();
    }

    // Writes while the file system fails all writes; then retries.
    void write_with_errors(TargetFile& target) {
        for (int k = 0; k < 3; ++k) write(target);
        fail_writes(true);
        drain_all();
        fail_writes(false);
        lose_power();
        operation_ = "retry";
        for (const auto& other : targets_) drain_.retry(other.slot);
    }

    static std::string as_bytes(const std::vector<std::uint64_t>& words) {
        return {reinterpret_cast<const char*>(words.data()), words.size() * word};
    }

    // ---- after a power failure

    void lose_power() {
        if (!problem_.empty()) return;
        ++power_failures_;
        persist_observer = nullptr;
        failure_random_.seed(seed_ << 32 | power_failures_);
        const bool failing = fail_writes(false);
        medium_.lose_power(crashed_.map());
        files_.lose_power();
        if (auto store = crashed_.attach()) {
            files_.redirect(*store, modelled_slots);
            check(recover(*store, {1}));
            // Recovery can be repeated, as it is when another file is kept.
            if (power_failures_ % 8 == 0) check(recover(*store, {1}));
        } else {
            report("the store is damaged");
        }
        fail_writes(failing);
        persist_observer = &medium_;
    }

    void report(const std::string& problem) {
        if (problem_.empty())
            problem_ = problem + "; in " + operation_ + ", at power failure " +
                       std::to_string(power_failures_) + " of seed " + std::to_string(seed_);
    }

    void check(const Recovery& recovery) {
        if (recovery.torn) report(std::to_string(recovery.torn) + " torn records");
        for (const auto& kept : recovery.kept) {
            const bool is_removed = unfinished_ && unfinished_->kind == Unfinished::Kind::remove;
            if (!is_removed)
                report(kept.path + " is kept: " + name_of(kept.condition) + " " +
                       std::strerror(kept.error));
        }
        for (const auto& target : targets_) check(target);
    }

    void check(const TargetFile& target) {
        const bool is_unfinished = unfinished_ && unfinished_->file == target.file;
        if (is_unfinished && unfinished_->kind == Unfinished::Kind::remove) return;
        if (!files_.exists_after(target.file)) {
            return report("a file is gone");
        }
        const std::string contents = files_.contents_after(target.file);
        std::vector<std::uint64_t> words(contents.size() / word);
        // Not memcpy, which takes no null pointer, the address of an empty vector.
        contents.copy(reinterpret_cast<char*>(words.data()), words.size() * word);
        std::vector<char> may_be_new(std::max(words.size(), target.words.size()));
        std::uint64_t value = 0;
        if (is_unfinished && unfinished_->kind == Unfinished::Kind::write) {
            value = unfinished_->value;
            for (const auto k : unfinished_->words)
                if (k < may_be_new.size()) may_be_new[k] = 1;
        }
        if (is_unfinished && unfinished_->kind == Unfinished::Kind::truncate)
            for (std::size_t k = unfinished_->value; k < may_be_new.size(); ++k) may_be_new[k] = 1;
        for (std::size_t k = 0; k < may_be_new.size(); ++k) {
            const std::uint64_t expected = k < target.words.size() ? target.words[k] : 0,
                                actual = k < words.size() ? words[k] : 0;
            if (actual != expected && !(may_be_new[k] && actual == value))
                return report(files_.path(target.file) + ": word " + std::to_string(k) +
                              " is of write " + std::to_string(actual) + ", not of " +
                              std::to_string(expected));
        }
        if (!is_unfinished && words.size() != target.words.size())
            report(files_.path(target.file) + " has " + std::to_string(words.size()) +
                   " words, not " + std::to_string(target.words.size()));
    }

    std::uint64_t seed_;
    bool small_writes_;      // small writes fill the record ring before the data ring
    Random random_;          // of the operations
    Random failure_random_;  // of the power failures
    std::unique_ptr<Store> store_;
    CrashedStore crashed_;
    FileSystem files_;
    Medium medium_;
    FileHandles handles_;
    Drain drain_;
    std::unique_ptr<Writer> writers_[ranks];
    std::vector<TargetFile> targets_;
    std::optional<Unfinished> unfinished_;
    std::uint64_t writes_ = 0;
    std::size_t power_failures_ = 0;
    std::string operation_, problem_;
};

}  // namespace

TEST_CASE("no power failure loses an acknowledged write or leaves a wrong byte" *
          doctest::test_suite("slow-power-loss")) {
    const char* seed_text = std::getenv("ASSAY_TEST_SEED");
    const std::uint64_t first = seed_text ? std::strtoull(seed_text, nullptr, 10) : 1;
    std::size_t power_failures = 0;
    for (std::uint64_t seed = first; seed < first + (seed_text ? 1 : 16); ++seed) {
        Folder folder;
        Workload workload(folder.path, seed);
        const std::string& problem = workload.run(90);
        power_failures += workload.power_failures();
        CHECK_MESSAGE(problem.empty(), problem);
    }
    if (!seed_text) CHECK(power_failures > 2000);
}
