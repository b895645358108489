// Tests of the store: reuse of ring space, the order of drained writes, recovery after kills,
// errors of the file system, and locks.
#include "storage/store/store.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/recover.hpp"
#include "storage/store/writer.hpp"
#include "store_fixture.hpp"

using namespace assay::storage;
namespace fs = std::filesystem;

TEST_CASE("a ring takes more data than it holds" * doctest::test_suite("slow")) {
    Folder folder;
    const auto path = folder.file("out");
    auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 2);
    drain.start(1);
    constexpr std::size_t block = 100'003, blocks = 3000;  // 300 MB through 40 MB
    std::vector<char> data(block);
    for (std::size_t k = 0; k < blocks; ++k) {
        std::memset(data.data(), static_cast<int>(k % 251), block);
        REQUIRE(write_block(*store, writer, slot, k * block, data.data(), block));
    }
    drain.finish(0, store->head(0).tail);
    CHECK(store->file(slot).error == 0);
    drain.stop();
    CHECK(fs::file_size(path) == block * blocks);
    std::ifstream in(path, std::ios::binary);
    for (std::size_t k = 0; k < blocks; ++k) {
        in.read(data.data(), block);
        REQUIRE(static_cast<unsigned char>(data[0]) == k % 251);
        REQUIRE(static_cast<unsigned char>(data[block - 1]) == k % 251);
    }
    store->remove();
}

TEST_CASE(
    "writes of several processes to the same bytes reach the file in the order of their "
    "sequences") {
    Folder folder;
    const auto path = folder.file("out");
    constexpr std::uint32_t ranks = 3;
    constexpr std::size_t cells = 64, cell = 512;
    auto store = create_store(folder.path, ranks);
    const auto slot = slot_of_file(*store, path);
    // The last write of each rank to each cell, with its sequence.
    struct LastWrites {
        std::uint64_t sequence[ranks][cells];
        std::uint64_t value[ranks][cells];
    };
    auto* last_writes = static_cast<LastWrites*>(mmap(
        nullptr, sizeof(LastWrites), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::vector<pid_t> children;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        if (const pid_t child = fork(); child) {
            children.push_back(child);
            continue;
        }
        {
            Writer writer(*store, rank);
            const FileHandles handles(*store, rank);
            Drain drain(*store, handles, 1);
            if (rank == 0) drain.start(1);
            std::mt19937 random(rank);
            std::uint64_t words[cell / 8];
            for (std::uint64_t k = 1; k <= 20'000; ++k) {
                const std::size_t offset = random() % cells;
                const std::uint64_t value = k * ranks + rank;
                for (auto& word : words) word = value;
                write_block(*store, writer, slot, offset * cell, words, sizeof words);
                last_writes->sequence[rank][offset] =
                    store->record(rank, store->head(rank).tail - 1).sequence;
                last_writes->value[rank][offset] = value;
            }
            drain.finish(rank, store->head(rank).tail);
        }
        _exit(0);
    }
    for (auto child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    const FileHandles handles(*store);
    Drain final_drain(*store, handles, 1);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        final_drain.finish(rank, store->head(rank).tail);
    REQUIRE(store->file(slot).error == 0);
    std::ifstream in(path, std::ios::binary);
    for (std::size_t offset = 0; offset < cells; ++offset) {
        std::uint64_t words[cell / 8];
        in.read(reinterpret_cast<char*>(words), sizeof words);
        std::uint32_t newest = 0;
        for (std::uint32_t rank = 1; rank < ranks; ++rank)
            if (last_writes->sequence[rank][offset] >= last_writes->sequence[newest][offset])
                newest = rank;
        for (auto word : words) REQUIRE(word == last_writes->value[newest][offset]);
    }
    munmap(last_writes, sizeof(LastWrites));
    store->remove();
}

namespace {

// Two ranks write versions of cells until they are killed. `acknowledged`: by rank, the last
// version whose write has returned.
constexpr std::uint32_t crash_ranks = 2;
constexpr std::size_t crash_cells = 40, crash_cell = 3000;
constexpr std::uint64_t crash_store = 32u << 20;  // a round makes and removes one

[[noreturn]] void write_until_killed(Store& store, std::uint32_t slot, std::uint32_t rank,
                                     volatile std::uint64_t* acknowledged) {
    Writer writer(store, rank);
    const FileHandles handles(store, rank);
    Drain drain(store, handles, 1);
    if (rank == 0) drain.start(1);
    std::vector<std::uint64_t> words(crash_cell / 8);
    for (std::uint64_t k = 1;; ++k) {
        for (auto& word : words) word = k;
        write_block(store, writer, slot, (rank * crash_cells + k % crash_cells) * crash_cell,
                    words.data(), crash_cell);
        acknowledged[rank] = k;
    }
}

// Kills the ranks at random moments, and recovers what they wrote.
void check_after_kills(int rounds) {
    Folder folder;
    auto* acknowledged = static_cast<volatile std::uint64_t*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    std::mt19937 random(7);
    std::uint64_t most_acknowledged = 0;
    for (int round = 0; round < rounds; ++round) {
        const auto path = folder.file("out");
        acknowledged[0] = 0;
        acknowledged[1] = 0;
        std::vector<pid_t> children;
        {
            auto store = create_store(folder.path, crash_ranks, "t", crash_store);
            const auto slot = slot_of_file(*store, path);
            for (std::uint32_t rank = 0; rank < crash_ranks; ++rank) {
                const pid_t child = fork();
                if (!child) write_until_killed(*store, slot, rank, acknowledged);
                children.push_back(child);
            }
            // One round of four ends at any time, also as the ranks start; the others after a
            // number of writes, which a slow machine reaches too.
            if (round % 4 == 0) {
                usleep(random() % 4000);
            } else {
                const std::uint64_t writes = random() % (8 * crash_cells);
                while (acknowledged[0] + acknowledged[1] < writes) usleep(20);
            }
            for (auto child : children) kill(child, SIGKILL);
            for (auto child : children) {
                int status = 0;
                waitpid(child, &status, 0);
                REQUIRE(WIFSIGNALED(status));
            }
        }
        Failure failure;
        auto store = Store::attach(folder.path / "assay-io-t", false, failure);
        REQUIRE_MESSAGE(store, failure.message);
        // The kernel may keep a killed process's lock for a moment, as where another reads /proc.
        for (int wait = 0; is_in_use(*store) && wait < 60'000; ++wait) usleep(1000);
        REQUIRE(!is_in_use(*store));
        const Recovery recovery = recover(*store, {1});
        REQUIRE(recovery.torn == 0);
        REQUIRE(recovery.kept.empty());
        store->remove();
        std::ifstream in(path, std::ios::binary);
        for (std::uint32_t rank = 0; rank < crash_ranks; ++rank) {
            const std::uint64_t last_version = acknowledged[rank];
            most_acknowledged = std::max(most_acknowledged, last_version);
            for (std::uint64_t offset = 0; offset < crash_cells; ++offset) {
                std::vector<std::uint64_t> words(crash_cell / 8);
                in.clear();
                in.seekg(static_cast<std::streamoff>((rank * crash_cells + offset) * crash_cell));
                in.read(reinterpret_cast<char*>(words.data()),
                        static_cast<std::streamsize>(words.size() * 8));
                std::uint64_t expected = last_version / crash_cells * crash_cells + offset;
                if (expected > last_version)
                    expected = expected >= crash_cells ? expected - crash_cells : 0;
                if (!expected || expected > last_version) continue;
                // The rank may have published one more write before it could acknowledge it.
                const bool is_expected =
                    words[0] == expected ||
                    (words[0] == last_version + 1 && (last_version + 1) % crash_cells == offset);
                REQUIRE(is_expected);
                for (auto word : words) REQUIRE(word == words[0]);
            }
        }
        fs::remove(path);
    }
    CHECK(most_acknowledged > crash_cells);  // otherwise nothing was overwritten
    munmap(const_cast<std::uint64_t*>(acknowledged), 4096);
}

}  // namespace

TEST_CASE("after 200 kills no acknowledged write is lost and none is torn" *
          doctest::test_suite("slow")) {
    check_after_kills(200);
}

TEST_CASE("after 1000 kills no acknowledged write is lost and none is torn" *
          doctest::test_suite("acceptance")) {
    check_after_kills(1000);
}

TEST_CASE("a torn record is counted and left out") {
    Folder folder;
    const auto path = folder.file("out");
    auto store = create_store(folder.path, 1);
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    for (std::uint64_t k = 0; k < 3; ++k) write_block(*store, writer, slot, 8 * k, "01234567", 8);
    store->record(0, 1).begin ^= 1u << 20;
    const Recovery recovery = recover(*store, {1});
    CHECK(recovery.torn == 1);  // the store is kept for it
    CHECK(recovery.undrained_before.records == 2);
    CHECK(recovery.undrained_before.bytes == 16);
    CHECK(recover(*store, {1}).torn == 1);
    CHECK(recover(*store, {1, false, true}).torn == 0);
    std::string text(24, '?');
    std::ifstream(path).read(text.data(), 24);
    CHECK(text == std::string("01234567") + std::string(8, '\0') + "01234567");
    store->remove();
}

TEST_CASE("a store that is in use, unrecovered, too small or without a folder is refused") {
    Folder folder;
    Failure failure;
    {
        auto store = create_store(folder.path / "pool", 1);
        CHECK(!Store::create(folder.path / "pool", small_store, 1, "other", "x", failure));
        CHECK(failure.message.find("in use by another job") != std::string::npos);
    }
    CHECK(!Store::create(folder.path / "pool", small_store, 1, "other", "x", failure));
    CHECK(failure.message.find("assay io recover " + (folder.path / "pool").string()) !=
          std::string::npos);
    CHECK(!Store::create(folder.path, 1u << 20, 4, "other", "x", failure));
    CHECK(failure.message.find("too small for 4 ranks") != std::string::npos);
    CHECK(!Store::create(folder.path / "no" / "such", small_store, 1, "other", "x", failure));
    CHECK(failure.message.find("there is no folder") != std::string::npos);
    CHECK(!Store::attach(folder.file("text"), false, failure));
    CHECK(failure.message.find("is not a store") != std::string::npos);
}

TEST_CASE("if the file system fails, the store keeps the data") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto path = folder.file("out");
    const auto slot = slot_of_file(*store, path);
    Writer writer(*store, 0);
    write_block(*store, writer, slot, 0, "abc", 3);
    // Beyond the largest offset that a file can have.
    write_block(*store, writer, slot, ~0ull / 2 - 1, "abc", 3);
    const Recovery recovery = recover(*store, {1});
    REQUIRE(recovery.kept.size() == 1);
    CHECK(recovery.kept[0].error == EINVAL);
    CHECK(undrained_data(*store).bytes == recovery.undrained_before.bytes);
    store->remove();
}

TEST_CASE("the first rank that opens a changed file marks its data as outdated for all ranks") {
    Folder folder;
    const auto path = folder.file("out");
    auto store = create_store(folder.path, 1);
    FileStatus closed;
    REQUIRE(read_status(path.c_str(), closed) == 0);
    const auto slot = acquire_slot(*store, closed, path);
    release_slot(*store, slot, &closed);
    std::ofstream(path) << "by another program";
    FileStatus changed;
    REQUIRE(read_status(path.c_str(), changed) == 0);
    const std::uint64_t durable = store->file(slot).durable = store->now();
    CHECK(acquire_slot(*store, changed, path) == slot);
    // Set before a second rank can be counted as a user.
    CHECK(store->file(slot).valid_from == durable);
    const std::uint64_t outdated = store->file(slot).valid_from;
    CHECK(acquire_slot(*store, changed, path) == slot);
    CHECK(store->file(slot).valid_from == outdated);
    CHECK(store->file(slot).users == 2);
    store->remove();
}

TEST_CASE("the end of data that are not drained stays when another program changes the file") {
    Folder folder;
    const auto path = folder.file("out");
    auto store = create_store(folder.path, 1);
    FileStatus status;
    REQUIRE(read_status(path.c_str(), status) == 0);
    const auto slot = acquire_slot(*store, status, path);
    Writer writer(*store, 0);
    REQUIRE(write_block(*store, writer, slot, 1000, "abc", 3));
    store->file(slot).end = 5000;  // drained
    release_slot(*store, slot, &status);
    std::ofstream(path) << "by another program";
    REQUIRE(read_status(path.c_str(), status) == 0);
    CHECK(acquire_slot(*store, status, path) == slot);
    CHECK(store->file(slot).end == 1003);
    store->remove();
}

TEST_CASE("another file with the same inode number is another file") {
    Folder folder;
    const auto path = folder.file("out");
    auto store = create_store(folder.path, 1);
    FileStatus status;
    REQUIRE(read_status(path.c_str(), status) == 0);
    const auto slot = acquire_slot(*store, status, path);
    FileStatus later = status;
    later.birth_ns += 1;
    if (status.birth_ns) CHECK(acquire_slot(*store, later, path) != slot);
    CHECK(acquire_slot(*store, status, path) == slot);
    store->remove();
}

TEST_CASE("a file that cannot be written does not delay others, and is written later") {
    Folder folder;
    auto store = create_store(folder.path, 1);
    const auto good_path = folder.file("good"), bad_path = folder.file("bad");
    const auto good = slot_of_file(*store, good_path), bad = slot_of_file(*store, bad_path);
    Writer writer(*store, 0);
    const FileHandles handles(*store);
    Drain drain(*store, handles, 1);
    fs::rename(bad_path, folder.path / "elsewhere");
    write_block(*store, writer, bad, 0, "abc", 3);
    write_block(*store, writer, good, 0, "def", 3);
    drain.finish(0, store->head(0).tail);
    CHECK(store->file(bad).error == ESTALE);
    CHECK(store->file(good).error == 0);
    CHECK(fs::file_size(good_path) == 3);
    CHECK(drain.retry(bad) == ESTALE);
    fs::rename(folder.path / "elsewhere", bad_path);
    CHECK(drain.retry(bad) == 0);
    CHECK(fs::file_size(bad_path) == 3);
    CHECK(store->file(bad).error == 0);
    store->remove();
}

// ---- a command that lists a store locks it for a moment

namespace {

// Locks the store exclusively for 0.1 s, as a command that lists it.
class Listing {
public:
    explicit Listing(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
        REQUIRE(flock(fd_, LOCK_EX | LOCK_NB) == 0);
        unlock_thread_ = std::thread([this] {
            usleep(100'000);
            flock(fd_, LOCK_UN);
        });
    }
    ~Listing() {
        unlock_thread_.join();
        close(fd_);
    }

private:
    int fd_;
    std::thread unlock_thread_;
};

}  // namespace

TEST_CASE("a store that is being listed does not count as in use by a job" *
          doctest::test_suite("acceptance")) {
    Folder folder;
    create_store(folder.path, 1).reset();
    const std::string path = folder.path / "assay-io-t";
    Failure failure;
    auto store = Store::attach(path, false, failure);
    REQUIRE_MESSAGE(store, failure.message);
    {
        const Listing listing(path);
        CHECK(!is_in_use(*store));
    }
    store.reset();
    const auto job = Store::attach(path, true, failure);
    const auto second = Store::attach(path, false, failure);
    REQUIRE(second);
    CHECK(is_in_use(*second));
}

TEST_CASE("a job can take over its kept store while it is being listed" *
          doctest::test_suite("acceptance")) {
    Folder folder;
    Failure failure;
    const std::string path = folder.path / "assay-io-t";
    auto store = Store::create(folder.path, small_store, 1, "job", "t", failure, "checkpoint");
    REQUIRE_MESSAGE(store, failure.message);
    store->finish();
    store.reset();
    const Listing listing(path);
    store = Store::create(folder.path, small_store, 1, "later", "t", failure, "checkpoint");
    REQUIRE_MESSAGE(store, failure.message);
    CHECK(store->taken_over());
}

TEST_CASE("a store whose parts are not aligned is refused as damaged") {
    const Folder folder;
    const std::string path = create_store(folder.path, 1)->path();
    for (const std::size_t field :
         {offsetof(Superblock, ring_bytes), offsetof(Superblock, record_slots)}) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        const auto write_field = [&](std::uint64_t value) {
            file.seekp(static_cast<std::streamoff>(field));
            file.write(reinterpret_cast<const char*>(&value), sizeof value);
            file.flush();
        };
        std::uint64_t valid_value = 0;
        file.seekg(static_cast<std::streamoff>(field));
        file.read(reinterpret_cast<char*>(&valid_value), sizeof valid_value);
        Failure failure;
        write_field(valid_value - 1);
        CHECK_FALSE(Store::attach(path, false, failure));
        CHECK(failure.message.find("damaged") != std::string::npos);
        write_field(valid_value);
    }
    Failure failure;
    CHECK(Store::attach(path, false, failure));
}
