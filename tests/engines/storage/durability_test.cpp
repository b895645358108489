// The store's promise (store/durability.hpp) against fsyncs that fail, and that lose what they did
// not write: data leave the rings only when they are durable, and the store only when all have
// left.
#include "storage/store/durability.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
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

struct Job {
    Folder folder;
    std::string path = folder.file("out");
    std::unique_ptr<Store> store;
    std::uint32_t slot;
    explicit Job(std::uint64_t size = small_store) {
        Failure failure;
        store = Store::create(folder.path, size, 1, "job", "t", failure);
        REQUIRE_MESSAGE(store, failure.message);
        store->set_phase(Phase::active);
        slot = slot_of_file(*store, path);
    }
    FileSlot& file() const { return store->file(slot); }
};

}  // namespace

TEST_CASE("data leave the ring after fsync, not before, and none is lost when fsyncs fail") {
    Job job(tiny_store);
    FileOnMedium medium(job.path);
    int failures = 0;
    SUBCASE("no fsync fails") {}
    SUBCASE("one fsync fails") { failures = 1; }
    SUBCASE("two fsyncs fail") { failures = 2; }
    medium.failures = failures;
    constexpr std::size_t blocks = 100;
    std::string expected;
    {
        Writer writer(*job.store, 0);
        FileHandles handles(*job.store, 0);
        handles.hold(job.slot, std::make_shared<const Descriptor>(
                                   open(job.path.c_str(), O_RDWR | O_CLOEXEC)));
        Drain drain(*job.store, handles, 1);
        writer.set_drain(&drain);
        drain.start(1);
        for (std::size_t k = 0; k < blocks; ++k) {
            const std::string data = contents_of_block(k);
            REQUIRE(write_block(*job.store, writer, job.slot, expected.size(), data.data(), block));
            expected += data;
            CHECK(job.file().evicted_newest.load() <= job.file().durable.load());
        }
        CHECK(job.store->head(0).first_record.load() > 0);
        CHECK(!may_remove(*job.store));
        drain.finish(0, blocks);
        while (drain.retry(job.slot) ||
               drain.sync(job.slot, handles.held(job.slot)->number()).error()) {
        }
        CHECK(medium.failed == failures);
        CHECK(may_remove(*job.store));
    }
    CHECK(read_contents(job.path) == expected);
    job.store->remove();
}

TEST_CASE("a writer with a full ring drains and syncs itself if no thread does") {
    Job job(tiny_store);
    {
        Writer writer(*job.store, 0);
        FileHandles handles(*job.store, 0);
        handles.hold(job.slot, std::make_shared<const Descriptor>(
                                   open(job.path.c_str(), O_RDWR | O_CLOEXEC)));
        Drain drain(*job.store, handles, 1);
        writer.set_drain(&drain);
        std::uint64_t offset = 0;
        const std::string data = contents_of_block(0);
        while (!job.store->head(0).first_record.load()) {
            REQUIRE(write_block(*job.store, writer, job.slot, offset, data.data(), block));
            offset += block;
        }
        CHECK(job.file().durable.load() > 0);
    }
    job.store->remove();
}

TEST_CASE("the background drain writes again what a failed fsync has lost") {
    Job job(tiny_store);
    FileOnMedium medium(job.path);
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
    medium.failures = 1;
    // While an fsync runs, the store still has what that may lose.
    medium.before_sync = [&] { CHECK(!may_remove(*store)); };
    CHECK(BackgroundDrain(*store, {"", 1, 1, 20}).run());
    CHECK(medium.failed == 1);
    CHECK(read_contents(job.path) == data);
    CHECK(!fs::exists(path));
}

TEST_CASE("recovery calls fsync of files whose data were written already") {
    Job job;
    FileOnMedium medium(job.path);
    {
        Writer writer(*job.store, 0);
        const FileHandles handles(*job.store);
        Drain drain(*job.store, handles, 1);
        REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
        drain.finish(0, 1);
    }
    REQUIRE(needs_sync(job.file()));
    const UndrainedData found = undrained_data(*job.store);
    REQUIRE(found.files.size() == 1);
    CHECK(found.bytes == 0);
    SUBCASE("it succeeds") {
        CHECK(recover(*job.store, {1}).kept.empty());
        CHECK(may_remove(*job.store));
    }
    SUBCASE("it fails: the store keeps the data, and the next recovery writes them") {
        medium.failures = 1;
        const Recovery first = recover(*job.store, {1});
        REQUIRE(first.kept.size() == 1);
        CHECK(first.kept[0].condition == FileCondition::failed);
        CHECK(!may_remove(*job.store));
        CHECK(recover(*job.store, {1}).kept.empty());
    }
    CHECK(medium.syncs - medium.failed == 1);
    CHECK(read_contents(job.path) == "abc");
    job.store->remove();
}

TEST_CASE("data that are written while an fsync runs are not durable after it") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    drain.finish(0, 1);
    bool is_first = true;
    medium.before_sync = [&] {
        if (!std::exchange(is_first, false)) return;
        REQUIRE(write_block(*job.store, writer, job.slot, 3, "def", 3));
        drain.finish(0, 2);
    };
    drain.sync_all();
    CHECK(may_evict(*job.store, job.store->record(0, 0)));
    CHECK(!may_evict(*job.store, job.store->record(0, 1)));
    CHECK(needs_sync(job.file()));
    drain.sync_all();
    CHECK(may_remove(*job.store));
    job.store->remove();
}

TEST_CASE("an fsync that follows a failed one of another process is no success") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1), of_another(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    drain.finish(0, 1);  // the program's flush finds no error
    medium.failures = 1;
    of_another.sync_all();
    const int fd = open(job.path.c_str(), O_RDWR | O_CLOEXEC);
    CHECK(drain.sync(job.slot, fd).error() == EIO);
    CHECK(drain.retry(job.slot) == 0);
    CHECK(drain.sync(job.slot, fd).error() == 0);
    CHECK(read_contents(job.path) == "abc");
    close(fd);
    job.store->remove();
}

TEST_CASE("an fsync during which failed data are written again does not cover them") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    drain.finish(0, 1);
    note_error(*job.store, job.file(), EIO);
    medium.before_sync = [&] { CHECK(drain.retry(job.slot) == 0); };
    const int fd = open(job.path.c_str(), O_RDWR | O_CLOEXEC);
    CHECK(drain.sync(job.slot, fd).error() == 0);
    CHECK(medium.syncs == 2);
    CHECK(may_remove(*job.store));
    close(fd);
    job.store->remove();
}

TEST_CASE("a truncation stays in its ring as long as older data may be repeated") {
    Folder folder;
    auto store = create_store(folder.path, 2);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer first(*store, 0), second(*store, 1);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    REQUIRE(write_block(*store, second, slot, 0, "abcdef", 6));
    for (std::uint32_t rank = 0; rank < 2; ++rank) drain.finish(rank, store->head(rank).tail);
    REQUIRE(truncate(path.c_str(), 2) == 0);
    Record record{};
    record.file = slot, record.generation = store->file(slot).generation;
    record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
    record.begin = 2;
    first.publish(&record, 1);
    drain.finish(0, 1);
    CHECK(!may_evict(*store, store->record(0, 0)));
    drain.sync_all();
    CHECK(may_evict(*store, store->record(0, 0)));
    CHECK(may_remove(*store));
    store->remove();
}

TEST_CASE("data that superseded bytes cover leave the ring after an fsync, too") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    job.file().superseded = 1;
    Record record{};
    record.file = job.slot, record.generation = job.file().generation;
    record.kind = static_cast<std::uint64_t>(RecordKind::superseded);
    record.sequence = job.store->now();
    record.length = record.stride = 3, record.count = 1;
    job.store->advance_clock(record.sequence + 1);
    writer.publish(&record, 1);
    drain.finish(0, 2);
    CHECK(read_contents(job.path).empty());
    CHECK(!may_remove(*job.store));
    drain.sync_all();
    CHECK(may_remove(*job.store));
    job.store->remove();
}

TEST_CASE(
    "after the job what is not settled is written again, but nothing older than evicted data") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    for (const char* text : {"aaa", "bbb", "ccc"})
        REQUIRE(write_block(*job.store, writer, job.slot, text[0] == 'c' ? 3 : 0, text, 3));
    drain.finish(0, 3);
    drain.sync_all();
    std::string expected = "bbbccc";
    SUBCASE("all are in the ring") { job.file().settled = job.store->record(0, 1).sequence; }
    SUBCASE("newer ones were evicted") {
        job.file().evicted_newest = job.store->record(0, 1).sequence;
        expected = "xxxccc";
    }
    std::ofstream(job.path, std::ios::binary) << "xxxxxx";  // older bytes of another node came last
    drain.repeat_unsettled(job.slot);
    CHECK(!may_remove(*job.store));
    CHECK(drain.retry(job.slot) == 0);
    CHECK(!may_remove(*job.store));
    drain.sync_all();
    CHECK(may_remove(*job.store));
    CHECK(read_contents(job.path) == expected);
    job.store->remove();
}

TEST_CASE("an fsync during which unsettled data are to be written again does not cover them") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    drain.finish(0, 1);
    drain.sync_all();
    bool is_first = true, repeats = false;
    SUBCASE("they are written after it") {}
    SUBCASE("they are written meanwhile") { repeats = true; }
    medium.before_sync = [&] {
        if (!std::exchange(is_first, false)) return;
        std::ofstream(job.path, std::ios::binary) << "xxx";  // older bytes of another node
        drain.repeat_unsettled(job.slot);
        if (repeats) CHECK(drain.retry(job.slot) == 0);
    };
    const int fd = open(job.path.c_str(), O_RDWR | O_CLOEXEC);
    drain.sync(job.slot, fd);
    CHECK(!may_remove(*job.store));
    CHECK(drain.retry(job.slot) == 0);
    CHECK(needs_sync(job.file()));
    drain.sync_all();
    CHECK(may_remove(*job.store));
    CHECK(read_contents(job.path) == "abc");
    close(fd);
    job.store->remove();
}

TEST_CASE("an fsync in which a process was killed counts as failed") {
    Job job;
    FileOnMedium medium(job.path);
    Writer writer(*job.store, 0);
    const FileHandles handles(*job.store);
    Drain drain(*job.store, handles, 1);
    REQUIRE(write_block(*job.store, writer, job.slot, 0, "abc", 3));
    drain.finish(0, 1);
    const pid_t child = fork();
    if (!child) _exit(0);
    usleep(100'000);
    job.file().syncing = static_cast<std::uint32_t>(child);  // a zombie has ended
    CHECK(truncate(job.path.c_str(), 0) == 0);               // what it was to make durable is lost
    const int fd = open(job.path.c_str(), O_RDWR | O_CLOEXEC);
    CHECK(drain.sync(job.slot, fd).error() == EIO);
    CHECK(job.file().error == EIO);
    CHECK(!may_remove(*job.store));
    CHECK(drain.retry(job.slot) == 0);
    CHECK(drain.sync(job.slot, fd).error() == 0);
    CHECK(may_remove(*job.store));
    CHECK(read_contents(job.path) == "abc");
    close(fd);
    job.store->remove();
}

TEST_CASE("a truncation cuts off older data of all ranks that are drained or repeated after it") {
    Folder folder;
    auto store = create_store(folder.path, 2);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer first(*store, 0), second(*store, 1);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    REQUIRE(write_block(*store, second, slot, 0, "abcdef", 6));
    bool repeated = false;
    SUBCASE("drained") {}
    SUBCASE("repeated") { repeated = true; }
    if (repeated) {
        drain.finish(1, 1);
        REQUIRE(truncate(path.c_str(), 2) == 0);
    }
    Record record{};
    record.file = slot, record.generation = store->file(slot).generation;
    record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
    record.begin = 2;
    first.publish(&record, 1);
    if (repeated) {
        note_error(*store, store->file(slot), EIO);
        CHECK(drain.retry(slot) == 0);
    }
    for (std::uint32_t rank = 0; rank < 2; ++rank) drain.finish(rank, store->head(rank).tail);
    CHECK(read_contents(path) == "ab");
    store->remove();
}
