// The store's promise (store/durability.hpp) against fsyncs that fail, and that lose what they did
// not write: data leave the rings only when they are durable, and the store only when all have
// left.
#include "storage/store/durability.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "power_model.hpp"
#include "storage/store/background_drain.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/recover.hpp"
#include "store_fixture.hpp"

namespace {

constexpr std::size_t block = 64u << 10;
constexpr std::uint64_t tiny_store = 22u << 20;  // with a data ring of about 2 MiB

std::string contents_of_block(std::size_t k) {
    return std::string(block, static_cast<char>('a' + k % 26));
}

// A file on a medium of its own: what was not fsynced successfully is lost when an fsync fails.
class FileOnMedium {
public:
    explicit FileOnMedium(std::string path)
        : path_(std::move(path)), medium_(read_contents(path_)) {
        on_fsync([this](int fd) { return sync(fd); });
    }
    ~FileOnMedium() { on_fsync(nullptr); }
    FileOnMedium(const FileOnMedium&) = delete;
    FileOnMedium& operator=(const FileOnMedium&) = delete;

    std::atomic<int> failures{0};  // how many of the next fsyncs fail
    std::atomic<int> syncs{0}, failed{0};
    std::function<void()> before_sync = [] {};

private:
    int sync(int fd) {
        before_sync();
        ++syncs;
        if (failures.load() <= 0) {
            medium_ = read_contents(path_);
            return 0;
        }
        --failures, ++failed;
        // The kernel takes the pages for clean and may drop them: the old contents come back, with
        // the same modification time.
        struct stat info{};
        REQUIRE(fstat(fd, &info) == 0);
        REQUIRE(ftruncate(fd, static_cast<off_t>(medium_.size())) == 0);
        for (std::size_t at = 0; at < medium_.size();)
            at += static_cast<std::size_t>(
                pwrite(fd, medium_.data() + at, medium_.size() - at, static_cast<off_t>(at)));
        const timespec times[2] = {info.st_atim, info.st_mtim};
        REQUIRE(futimens(fd, times) == 0);
        return EIO;
    }
    std::string path_, medium_;
};

// A job of one node with a file on a medium.
struct Job {
    Folder folder;
    std::string path = folder.file("out");
    std::unique_ptr<Store> store;
    std::uint32_t slot;
    FileOnMedium medium{path};
    explicit Job(std::uint64_t size = small_store, std::uint32_t ranks = 1) {
        Failure failure;
        store = Store::create(folder.path, size, ranks, "job", "t", failure);
        REQUIRE_MESSAGE(store, failure.message);
        store->set_phase(Phase::active);
        slot = slot_of_file(*store, path);
    }
    ~Job() {
        if (store) store->remove();
    }
    FileSlot& file() const { return store->file(slot); }
    std::string contents() const { return read_contents(path); }
};

// The same with writers and a drain.
struct DrainedJob : Job {
    std::deque<Writer> writers;  // by rank
    const FileHandles handles{*store};
    Drain drain{*store, handles, 1};
    explicit DrainedJob(std::uint64_t size = small_store, std::uint32_t ranks = 1)
        : Job(size, ranks) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) writers.emplace_back(*store, rank);
    }
    bool write(std::uint64_t offset, const std::string& text, std::uint32_t rank = 0) {
        return write_block(*store, writers[rank], slot, offset, text.data(), text.size());
    }
    void drain_all() {
        for (std::uint32_t rank = 0; rank < store->ranks(); ++rank)
            drain.finish(rank, store->head(rank).tail);
    }
    // Returns 0 or errno.
    int sync() {
        const Descriptor descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
        return drain.sync(slot, descriptor.number()).error();
    }
    Record record_of(RecordKind kind) const {
        Record record{};
        record.file = slot, record.generation = file().generation;
        record.kind = static_cast<std::uint64_t>(kind);
        return record;
    }
    // The first rank publishes a truncation to two bytes.
    void publish_truncation() {
        Record record = record_of(RecordKind::truncate);
        record.begin = 2;
        writers[0].publish(&record, 1);
    }
};

}  // namespace

TEST_CASE("data leave the ring after fsync, not before, and none is lost when fsyncs fail") {
    DrainedJob job(tiny_store);
    int failures = 0;
    SUBCASE("no fsync fails") {}
    SUBCASE("one fsync fails") { failures = 1; }
    SUBCASE("two fsyncs fail") { failures = 2; }
    job.medium.failures = failures;
    constexpr std::size_t blocks = 100;
    std::string expected;
    job.writers[0].set_drain(&job.drain);
    job.drain.start(1);
    for (std::size_t k = 0; k < blocks; ++k) {
        const std::string data = contents_of_block(k);
        REQUIRE(job.write(expected.size(), data));
        expected += data;
        CHECK(job.file().evicted_newest.load() <= job.file().durable.load());
    }
    CHECK(job.store->head(0).first_record.load() > 0);
    CHECK(!may_remove(*job.store));
    job.drain_all();
    while (job.drain.retry(job.slot) || job.sync()) {
    }
    CHECK(job.medium.failed == failures);
    CHECK(may_remove(*job.store));
    job.drain.stop();
    CHECK(job.contents() == expected);
}

TEST_CASE("a writer with a full ring drains and syncs itself if no thread does") {
    DrainedJob job(tiny_store);
    job.writers[0].set_drain(&job.drain);
    const std::string data = contents_of_block(0);
    for (std::uint64_t offset = 0; !job.store->head(0).first_record.load(); offset += block)
        REQUIRE(job.write(offset, data));
    CHECK(job.file().durable.load() > 0);
}

TEST_CASE("a write into a full ring fails if its file's fsyncs go on to fail" *
          doctest::test_suite("slow")) {
    DrainedJob job(tiny_store);
    job.writers[0].set_drain(&job.drain);
    // They would fail for longer than the write may wait.
    const std::uint64_t end_ns = job.store->now() + 30'000'000'000;
    job.medium.before_sync = [&] { job.medium.failures = job.store->now() < end_ns; };
    job.drain.start(1);
    const std::string data = contents_of_block(0);
    std::uint64_t offset = 0;
    while (!job.store->head(0).first_record.load() && job.write(offset, data)) offset += block;
    CHECK(job.writers[0].error() == EIO);
    CHECK(job.store->head(0).first_record.load() == 0);
    job.drain.stop();
}

TEST_CASE("the background drain writes again what a failed fsync has lost") {
    Job job(tiny_store);
    const std::string path = job.store->path(), data = contents_of_block(1) + contents_of_block(2);
    {
        Writer writer(*job.store, 0);
        REQUIRE(write_block(*job.store, writer, job.slot, 0, data.data(), data.size()));
    }
    job.file().acknowledged = 1;
    release_slot(*job.store, job.slot, nullptr);
    job.store->set_phase(Phase::detached);
    job.store.reset();
    Failure failure;
    auto store = Store::attach(path, true, failure);
    REQUIRE(store);
    job.medium.failures = 1;
    // While an fsync runs, the store still has what that may lose.
    job.medium.before_sync = [&] { CHECK(!may_remove(*store)); };
    CHECK(BackgroundDrain(*store, {"", 1, 1, 20}).run());
    CHECK(job.medium.failed == 1);
    CHECK(job.contents() == data);
    CHECK(!fs::exists(path));
}

TEST_CASE("recovery calls fsync of files whose data were written already") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    REQUIRE(needs_sync(job.file()));
    const UndrainedData found = undrained_data(*job.store);
    REQUIRE(found.files.size() == 1);
    CHECK(found.bytes == 0);
    SUBCASE("it succeeds") {
        CHECK(recover(*job.store, {1}).kept.empty());
        CHECK(may_remove(*job.store));
    }
    SUBCASE("it fails: the store keeps the data, and the next recovery writes them") {
        job.medium.failures = 1;
        const Recovery first = recover(*job.store, {1});
        REQUIRE(first.kept.size() == 1);
        CHECK(first.kept[0].condition == FileCondition::failed);
        CHECK(!may_remove(*job.store));
        CHECK(recover(*job.store, {1}).kept.empty());
    }
    CHECK(job.medium.syncs - job.medium.failed == 1);
    CHECK(job.contents() == "abc");
}

TEST_CASE("recovery of a file that another program has changed since") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    std::ofstream(job.path) << "NEW";
    const timespec later[2] = {{0, UTIME_OMIT}, {std::time(nullptr) + 3600, 0}};
    REQUIRE(utimensat(AT_FDCWD, job.path.c_str(), later, 0) == 0);
    SUBCASE("the data were written: only the fsync is missing") {
        CHECK(recover(*job.store, {1}).kept.empty());
        CHECK(may_remove(*job.store));
    }
    SUBCASE("a process was killed in the fsync: whether the data are durable is not known") {
        job.file().syncing = 1;
        const Recovery recovery = recover(*job.store, {1});
        REQUIRE(recovery.kept.size() == 1);
        CHECK(recovery.kept[0].condition == FileCondition::changed);
        CHECK(recovery.kept[0].bytes == 3);
        CHECK(!may_remove(*job.store));
    }
    CHECK(job.contents() == "NEW");
}

TEST_CASE("recovery does not take a direct write of the job for a change by another program") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.file().known_mtime_ns = 1;
    job.store->note_alive();
    SUBCASE("the file was written directly: the time of the last write is not known") {
        job.file().route = Route::left_direct;
        CHECK(recover(*job.store, {1}).kept.empty());
        CHECK(job.contents() == "abc");
    }
    SUBCASE("it was not") {
        job.file().route = Route::store;
        CHECK(recover(*job.store, {1}).kept.size() == 1);
    }
}

TEST_CASE("data that are written while an fsync runs are not durable after it") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    bool is_first = true;
    job.medium.before_sync = [&] {
        if (!std::exchange(is_first, false)) return;
        REQUIRE(job.write(3, "def"));
        job.drain_all();
    };
    job.drain.sync_all();
    CHECK(may_evict(*job.store, job.store->record(0, 0)));
    CHECK(!may_evict(*job.store, job.store->record(0, 1)));
    CHECK(needs_sync(job.file()));
    job.drain.sync_all();
    CHECK(may_remove(*job.store));
}

TEST_CASE("an fsync that follows a failed one of another process is no success") {
    DrainedJob job;
    Drain of_another(*job.store, job.handles, 1);
    REQUIRE(job.write(0, "abc"));
    job.drain_all();  // the program's flush finds no error
    job.medium.failures = 1;
    of_another.sync_all();
    CHECK(job.sync() == EIO);
    CHECK(job.drain.retry(job.slot) == 0);
    CHECK(job.sync() == 0);
    CHECK(job.contents() == "abc");
}

TEST_CASE("an fsync during which failed data are written again does not cover them") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    note_error(*job.store, job.file(), EIO);
    job.medium.before_sync = [&] { CHECK(job.drain.retry(job.slot) == 0); };
    CHECK(job.sync() == 0);
    CHECK(job.medium.syncs == 2);
    CHECK(may_remove(*job.store));
}

TEST_CASE("a truncation stays in its ring as long as older data may be repeated") {
    DrainedJob job(small_store, 2);
    REQUIRE(job.write(0, "abcdef", 1));
    job.drain_all();
    REQUIRE(truncate(job.path.c_str(), 2) == 0);
    job.publish_truncation();
    job.drain_all();
    CHECK(!may_evict(*job.store, job.store->record(0, 0)));
    job.drain.sync_all();
    CHECK(may_evict(*job.store, job.store->record(0, 0)));
    CHECK(may_remove(*job.store));
}

TEST_CASE("data that superseded bytes cover leave the ring after an fsync, too") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.file().superseded = 1;
    Record record = job.record_of(RecordKind::superseded);
    record.sequence = job.store->now();
    record.length = record.stride = 3, record.count = 1;
    job.store->advance_clock(record.sequence + 1);
    job.writers[0].publish(&record, 1);
    job.drain_all();
    CHECK(job.contents().empty());
    CHECK(!may_remove(*job.store));
    job.drain.sync_all();
    CHECK(may_remove(*job.store));
}

TEST_CASE(
    "after the job what is not settled is written again, but nothing older than evicted data") {
    DrainedJob job;
    for (const std::string text : {"aaa", "bbb", "ccc"})
        REQUIRE(job.write(text[0] == 'c' ? 3 : 0, text));
    job.drain_all();
    job.drain.sync_all();
    job.file().shared = 1;
    std::string expected = "bbbccc";
    bool is_complete = true;
    SUBCASE("all are in the ring") { job.file().settled = job.store->record(0, 1).sequence; }
    SUBCASE("newer ones were evicted") {
        job.file().evicted_newest = job.store->record(0, 1).sequence;
        expected = "xxxccc";
        is_complete = false;
    }
    std::ofstream(job.path, std::ios::binary) << "xxxxxx";  // older bytes of another node came last
    CHECK(job.drain.repeat_unsettled() == is_complete);
    CHECK(!may_remove(*job.store));
    CHECK(job.drain.retry(job.slot) == 0);
    CHECK(!may_remove(*job.store));
    job.drain.sync_all();
    CHECK(may_remove(*job.store));
    CHECK(job.contents() == expected);
}

TEST_CASE(
    "a file of which newer data have left the store does not keep others from being repeated") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    job.drain.sync_all();
    job.file().shared = 1;
    job.file().evicted_newest = job.store->record(0, 0).sequence;
    const std::string later = job.folder.file("later");
    job.slot = slot_of_file(*job.store, later);
    job.file().shared = 1;
    REQUIRE(job.write(0, "def"));
    job.drain_all();
    job.drain.sync_all();
    std::ofstream(later, std::ios::binary) << "xxx";  // older bytes of another node came last
    CHECK(!job.drain.repeat_unsettled());
    CHECK(!may_remove(*job.store));
    CHECK(job.drain.retry(job.slot) == 0);
    CHECK(read_contents(later) == "def");
}

TEST_CASE("an fsync during which unsettled data are to be written again does not cover them") {
    DrainedJob job;
    REQUIRE(job.write(0, "abc"));
    job.drain_all();
    job.drain.sync_all();
    job.file().shared = 1;
    bool is_first = true, repeats = false;
    SUBCASE("they are written after it") {}
    SUBCASE("they are written meanwhile") { repeats = true; }
    job.medium.before_sync = [&] {
        if (!std::exchange(is_first, false)) return;
        std::ofstream(job.path, std::ios::binary) << "xxx";  // older bytes of another node
        CHECK(job.drain.repeat_unsettled());
        if (repeats) CHECK(job.drain.retry(job.slot) == 0);
    };
    job.sync();
    CHECK(!may_remove(*job.store));
    CHECK(job.drain.retry(job.slot) == 0);
    CHECK(needs_sync(job.file()));
    job.drain.sync_all();
    CHECK(may_remove(*job.store));
    CHECK(job.contents() == "abc");
}

TEST_CASE(
    "an fsync in which a process was killed counts as failed, and its data are written again") {
    for (const bool is_noted_first : {false, true}) {
        CAPTURE(is_noted_first);
        DrainedJob job;
        REQUIRE(job.write(0, "abc"));
        job.drain_all();
        const pid_t child = fork();
        if (!child) _exit(0);
        siginfo_t ending{};
        REQUIRE(waitid(P_PID, static_cast<id_t>(child), &ending, WEXITED | WNOWAIT) == 0);
        job.file().syncing = static_cast<std::uint32_t>(child);  // a zombie has ended
        CHECK(truncate(job.path.c_str(), 0) == 0);  // what it was to make durable is lost
        if (is_noted_first) job.drain.note_interrupted_sync(job.slot);
        else CHECK(job.sync() == EIO);
        CHECK(job.file().error == EIO);
        CHECK(!may_remove(*job.store));
        CHECK(job.drain.retry(job.slot) == 0);
        CHECK(job.sync() == 0);
        CHECK(may_remove(*job.store));
        CHECK(job.contents() == "abc");
    }
}

TEST_CASE("a truncation cuts off older data of all ranks that are drained or repeated after it") {
    DrainedJob job(small_store, 2);
    REQUIRE(job.write(0, "abcdef", 1));
    bool repeated = false;
    SUBCASE("drained") {}
    SUBCASE("repeated") { repeated = true; }
    if (repeated) {
        job.drain_all();
        REQUIRE(truncate(job.path.c_str(), 2) == 0);
    }
    job.publish_truncation();
    if (repeated) {
        note_error(*job.store, job.file(), EIO);
        CHECK(job.drain.retry(job.slot) == 0);
    }
    job.drain_all();
    CHECK(job.contents() == "ab");
}
