// Waiting for the drain of another job. The moment in which that drain ends is planted: while the
// waiting job asks whether the store is in use.
#include "storage/store/other_jobs.hpp"

#include <doctest/doctest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <utility>

#include "store_fixture.hpp"

std::function<void()> before_lock;
std::function<void(int)> between_locks;

// Takes the place of the C library's flock() in this program.
extern "C" int flock(int fd, int operation) noexcept {
    if (before_lock && operation == (LOCK_EX | LOCK_NB)) std::exchange(before_lock, nullptr)();
    if (between_locks && operation & LOCK_SH) {
        syscall(SYS_flock, fd, LOCK_UN);
        std::exchange(between_locks, nullptr)(fd);
        operation |= LOCK_NB;  // the test must not wait for itself
    }
    return static_cast<int>(syscall(SYS_flock, fd, operation));
}

namespace {

// A job has ended; its drain still has a record of the file to write, and holds the store.
struct EarlierJob {
    Folder folder;
    std::string path = folder.file("data");
    std::unique_ptr<Store> store, own_store;
    std::uint32_t slot = 0;
    FileStatus status;

    explicit EarlierJob(const char* job = "earlier") {
        Failure failure;
        store = Store::create(folder.path, small_store, 1, job, "earlier", failure);
        REQUIRE_MESSAGE(store, failure.message);
        own_store = create_store(folder.path, 1, "own");
        slot = slot_of_file(*store, path);
        Writer writer(*store, 0);
        const char data[64]{};
        REQUIRE(write_block(*store, writer, slot, 0, data, sizeof data));
        release_slot(*store, slot, nullptr);
        store->file(slot).acknowledged = 1;
        store->set_phase(Phase::detached);
        REQUIRE(read_status(path.c_str(), status) == 0);
    }
    void end(bool is_written) {
        if (is_written) store->head(0).drained = store->head(0).tail.load();
        flock(store->descriptor(), LOCK_UN);
    }
    std::string wait() { return wait_for_other_jobs(*own_store, status, 1); }
};

}  // namespace

TEST_CASE("a drain that ends while another job asks for it has written the file") {
    EarlierJob earlier;
    bool was_asked = false;
    before_lock = [&] {
        was_asked = true;
        earlier.end(true);
    };
    CHECK(earlier.wait() == "");
    CHECK(was_asked);
}

TEST_CASE("a drain that ends without having written is an error") {
    EarlierJob earlier;
    before_lock = [&] { earlier.end(false); };
    CHECK(earlier.wait().find("no drain runs; fix: assay io drain") != std::string::npos);
}

TEST_CASE("a drain that does not end is waited for with a limit") {
    EarlierJob earlier;
    CHECK(earlier.wait().find("not written within 1 s") != std::string::npos);
}

TEST_CASE("an earlier program of the same job is waited for, another node of the program is not") {
    EarlierJob earlier("job");  // as own_store's
    CHECK(earlier.wait().find("not written within 1 s") != std::string::npos);
    earlier.store->set_phase(Phase::active);
    CHECK(earlier.wait() == "");
    const pid_t rank = fork();
    if (!rank) _exit(0);
    waitpid(rank, nullptr, 0);
    earlier.store->head(0).pid = static_cast<std::uint32_t>(rank);  // it was killed, its drain runs
    CHECK(earlier.wait().find("not written within 1 s") != std::string::npos);
}

TEST_CASE("the next job removes the stores that aborted jobs have left empty, and no other") {
    EarlierJob earlier;  // its store holds data
    const auto other = create_store(earlier.folder.path, 1, "other");
    const auto kept = create_store(earlier.folder.path, 1, "kept");
    kept->set_phase(Phase::kept);
    const auto made = create_store(earlier.folder.path, 1, "made");
    made->set_phase(Phase::formatting);
    const auto exist = [](const std::unique_ptr<Store>& store) {
        return fs::exists(store->path());
    };
    for (const auto* store : {earlier.store.get(), kept.get(), made.get()})
        flock(store->descriptor(), LOCK_UN);  // as if their processes had ended
    remove_empty_stores(earlier.folder.path);
    CHECK((exist(earlier.store) && exist(other) && exist(kept) && exist(made)));

    flock(other->descriptor(), LOCK_UN);
    earlier.end(true);
    earlier.store->file(earlier.slot).durable = earlier.store->now();
    remove_empty_stores(earlier.folder.file("store"));
    CHECK((!exist(earlier.store) && !exist(other) && exist(earlier.own_store)));
    CHECK((exist(kept) && exist(made)));
}
