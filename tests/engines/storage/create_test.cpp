// Creating and removing stores beside files of others: only the store's own file is ever removed or
// overwritten.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "power_model.hpp"
#include "storage/store/superblock.hpp"
#include "store_fixture.hpp"

namespace {

// A reason for which no store can be created.
struct Fault {
    std::string message;
    std::uint64_t store_bytes = small_store;
    long file_system = 0;
    std::size_t free_bytes = 0;  // 0: unlimited
};
const std::vector<Fault> faults{{"too small for 1 ranks", 1u << 20},
                                {"it is on NFS", small_store, NFS_SUPER_MAGIC},
                                {"it is on SMB", small_store, SMB_SUPER_MAGIC},
                                {"has no space left", small_store, EXT4_SUPER_MAGIC, 1u << 20}};

// Tries to create the store `x` at the location. Returns the error message.
std::string create_with(const Fault& fault, const fs::path& location) {
    model_file_system(fault.file_system);
    fill_device(fault.free_bytes);
    Failure failure;
    const auto store = Store::create(location, fault.store_bytes, 1, "job", "x", failure);
    model_file_system(0);
    fill_device(0);
    return failure.message;
}

std::string create(const fs::path& location) { return create_with({""}, location); }

void write_file(const fs::path& path, const std::string& contents) {
    std::ofstream(path, std::ios::binary) << contents;
}

std::string read_file(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

bool is_store(const fs::path& path) { return version_of(path) == store_version; }

}  // namespace

TEST_CASE("an empty file of a user is there and empty after a creation that fails") {
    for (const Fault& fault : faults) {
        CAPTURE(fault.message);
        const Folder folder;
        const fs::path in_folder = folder.file("assay-io-x"), named = folder.file("pool");
        CHECK(create_with(fault, folder.path).find(fault.message) != std::string::npos);
        CHECK(create_with(fault, named).find(fault.message) != std::string::npos);
        for (const auto& path : {in_folder, named}) {
            REQUIRE(fs::exists(path));
            CHECK(fs::file_size(path) == 0);
        }
    }
}

TEST_CASE("a creation that fails leaves no file of its own") {
    for (const Fault& fault : faults) {
        CAPTURE(fault.message);
        const Folder folder;
        CHECK(create_with(fault, folder.path).find(fault.message) != std::string::npos);
        CHECK(create_with(fault, folder.path / "pool").find(fault.message) != std::string::npos);
        CHECK(fs::is_empty(folder.path));
    }
}

TEST_CASE("a file with other data is not overwritten") {
    std::string late(20u << 20, 0);
    late.back() = 'x';
    for (const auto& contents : {std::string("results"), late}) {
        const Folder folder;
        for (const char* name : {"assay-io-x", "pool"}) {
            const fs::path path = folder.path / name;
            write_file(path, contents);
            const bool is_named = path.filename() == "pool";
            CHECK(create(is_named ? path : folder.path).find("a file with other data") !=
                  std::string::npos);
            CHECK(read_file(path) == contents);
            Failure failure;
            erase_store(path, failure);
            CHECK(failure.message.find("is not a store") != std::string::npos);
            CHECK(read_file(path) == contents);
        }
    }
}

TEST_CASE("a file of zeros becomes a store") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    write_file(path, std::string(1u << 20, 0));
    CHECK(create(path) == "");
    CHECK(is_store(path));
}

TEST_CASE("neither pipes nor other devices are opened") {
    const Folder folder;
    const fs::path pipe = folder.path / "assay-io-x";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    CHECK(create(folder.path).find("cannot be opened as a store") != std::string::npos);
    CHECK(fs::is_fifo(pipe));
    CHECK(create("/dev/null").find("neither a folder, a file nor") != std::string::npos);
}

TEST_CASE("a store that its job removes while another one waits for it is made anew") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    create_store(path, 1)->set_phase(Phase::clean);
    before_lock = [&] { fs::remove(path); };
    CHECK(create(path) == "");
    CHECK(is_store(path));
}

TEST_CASE("a file that takes the place of a removed store stays") {
    const Folder folder;
    const fs::path path = folder.path / "pool";
    const auto replace = [&] {
        fs::remove(path);
        write_file(path, "results");
    };
    SUBCASE("while another job waits for the store") {
        create_store(path, 1)->set_phase(Phase::clean);
        before_lock = replace;
        CHECK(create(path).find("a file with other data") != std::string::npos);
    }
    SUBCASE("before the store's job ends") {
        const auto store = create_store(path, 1);
        replace();
        store->remove();
    }
    SUBCASE("before the store is erased") {
        create_store(path, 1)->set_phase(Phase::clean);
        before_lock = replace;
        Failure failure;
        erase_store(path, failure);
        CHECK(failure.message.find("cannot be removed") != std::string::npos);
    }
    CHECK(read_file(path) == "results");
}

TEST_CASE("a store that is named by a link is removed, and the link stays") {
    const Folder folder;
    const fs::path link = folder.path / "link", path = folder.file("pool");
    fs::create_symlink(path, link);
    const auto store = create_store(link, 1);
    CHECK(is_store(path));
    store->remove();
    CHECK(!fs::exists(path));
    CHECK(fs::is_symlink(link));
}

TEST_CASE("no store is made where a dangling link leads") {
    const Folder folder;
    const fs::path target = folder.path / "target";
    for (const char* name : {"assay-io-x", "pool"}) {
        const fs::path link = folder.path / name;
        fs::create_symlink(target, link);
        CHECK(create(link.filename() == "pool" ? link : folder.path).find("is a symbolic link") !=
              std::string::npos);
        CHECK(fs::is_symlink(link));
        CHECK(!fs::exists(target));
    }
}

TEST_CASE("a link at a name that the job has chosen is not followed") {
    const Folder folder;
    const fs::path target = folder.file("target");
    fs::create_symlink(target, folder.path / "assay-io-x");
    CHECK(create(folder.path).find("which is not followed") != std::string::npos);
    CHECK(fs::file_size(target) == 0);
}

// ---- space

TEST_CASE("the space of all but the data is allocated before a store is used") {
    const Folder folder;
    const auto store = create_store(folder.path, 3);
    struct stat info{};
    REQUIRE(fstat(store->descriptor(), &info) == 0);
    const StoreLayout& layout = store->layout();
    const std::uint64_t tables =
        StoreLayout::ranks_offset() +
        3 * (StoreLayout::rank_overhead() + layout.record_slots * sizeof(Record));
    CHECK(static_cast<std::uint64_t>(info.st_blocks) * 512 >= tables);
    store->remove();
}

TEST_CASE("a store is refused if the device has no space for its records") {
    const StoreLayout layout = StoreLayout::fit(small_store, 1);
    for (const std::size_t space : {StoreLayout::files_offset() + page, layout.records_offset(0),
                                    layout.data_offset(0) - page}) {
        CAPTURE(space);
        const Folder folder;
        const Fault fault{"has no space left", small_store, EXT4_SUPER_MAGIC, space};
        CHECK(create_with(fault, folder.path).find(fault.message) != std::string::npos);
        CHECK(fs::is_empty(folder.path));
    }
}

namespace {

// Runs `body` in a child process whose files may have `bytes`. Returns the child's exit status; 128
// and more: it ended by a signal.
template <class Body>
int with_file_size_limit(std::uint64_t bytes, Body body) {
    const pid_t child = fork();
    if (!child) {
        const rlimit limit{bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(body());
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a store is not larger than a file of the program may be") {
    const Folder folder;
    for (const std::uint64_t size : {std::uint64_t{0}, small_store}) {
        CAPTURE(size);
        CHECK(with_file_size_limit(40u << 20, [&] {
                  Failure failure;
                  const auto store = Store::create(folder.path, size, 1, "job", "x", failure);
                  if (!store) return 1;
                  const bool fits = fs::file_size(store->path()) == 40u << 20;
                  store->remove();
                  return fits ? 0 : 2;
              }) == 0);
    }
}

TEST_CASE("no store is made if files of the program must be too small for one") {
    const Folder folder;
    CHECK(with_file_size_limit(20'000 << 10, [&] {
              Failure failure;
              const auto store = Store::create(folder.path, small_store, 1, "job", "x", failure);
              return !store && failure.message.find("ulimit -f") != std::string::npos ? 0 : 1;
          }) == 0);
    CHECK(fs::is_empty(folder.path));
}

// ---- other users and other jobs

namespace {

constexpr uid_t nobody = 65534;

// A store at the path that belongs to another user, who holds its lock.
struct StrangersStore {
    int fd;
    explicit StrangersStore(const fs::path& folder) {
        const auto store = create_store(folder, 1, "x");
        store->set_phase(Phase::detached);
        REQUIRE(chown(store->path().c_str(), nobody, nobody) == 0);
        fd = open(store->path().c_str(), O_RDWR | O_CLOEXEC);
    }
    ~StrangersStore() { close(fd); }
    void lock() const { REQUIRE(syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0); }
    void unlock() const { syscall(SYS_flock, fd, LOCK_UN); }
};

}  // namespace

TEST_CASE("the lock of another user is not waited for" * doctest::skip(geteuid() != 0)) {
    const Folder folder;
    const StrangersStore stranger(folder.path);
    stranger.lock();
    bool waits = false;
    before_lock = [&] {
        waits = true;
        stranger.unlock();
    };
    CHECK(create(folder.path).find("belongs to another user") != std::string::npos);
    CHECK(!waits);
    before_lock = nullptr;
}

TEST_CASE("a store of another user is neither attached to nor erased" *
          doctest::skip(geteuid() != 0)) {
    const Folder folder;
    const StrangersStore stranger(folder.path);
    const std::string path = folder.path / "assay-io-x";
    Failure attached, erased;
    CHECK(Store::attach(path, false, attached) == nullptr);
    CHECK(attached.message.find("is owned by another user") != std::string::npos);
    erase_store(path, erased);
    CHECK(erased.message.find("is owned by another user") != std::string::npos);
    CHECK(version_of(path) == 0);
    CHECK(fs::exists(path));
}

TEST_CASE("a device that others may write is known by its owner and mode") {
    struct stat info{};
    info.st_uid = geteuid();
    for (const mode_t mode : {0600u, 0400u, 0644u}) {
        info.st_mode = S_IFCHR | mode;
        CHECK(!may_be_written_by_others(info));
    }
    for (const mode_t mode : {0660u, 0620u, 0602u, 0666u}) {
        info.st_mode = S_IFCHR | mode;
        CHECK(may_be_written_by_others(info));
    }
    info.st_mode = S_IFCHR | 0600;
    info.st_uid = geteuid() + 1;
    CHECK(may_be_written_by_others(info));
}

TEST_CASE("a job that loses its store between two locks does not use it") {
    const Folder folder;
    const std::string path = folder.path / "assay-io-x";
    std::unique_ptr<Store> other;
    int fd = -1;
    SUBCASE("another job has it") {
        between_locks = [&](int) {
            fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
            REQUIRE(syscall(SYS_flock, fd, LOCK_EX | LOCK_NB) == 0);
        };
    }
    SUBCASE("another job has made it anew, and shares it") {
        between_locks = [&](int) {
            Failure failure;
            other = Store::create(folder.path, small_store, 1, "other", "x", failure);
            REQUIRE(other);
        };
    }
    SUBCASE("another job has removed it") {
        between_locks = [&](int) { fs::remove(path); };
    }
    Failure failure;
    CHECK(Store::create(folder.path, small_store, 1, "job", "x", failure) == nullptr);
    CHECK(failure.message.find("was taken by another job") != std::string::npos);
    between_locks = nullptr;
    CHECK(fs::exists(path) == (fd >= 0 || other != nullptr));
    if (fd >= 0) close(fd);
}

TEST_CASE("a store that its job has not completed is erased, and no other empty file") {
    const Folder folder;
    const std::string path = folder.file("assay-io-x"), results = folder.file("results");
    Failure failure, refused;
    erase_store(path, failure);
    CHECK(failure.message == "");
    CHECK(!fs::exists(path));
    erase_store(results, refused);
    CHECK(refused.message.find("is not a store") != std::string::npos);
    CHECK(fs::exists(results));
}
