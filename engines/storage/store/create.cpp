// Creates a store at a location: finds its path, opens and locks the file or device there, and
// takes over the kept store that it holds or makes a new one. On failure the files of others are
// as they were: only a file that this call has created is removed.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "machine/available_memory.hpp"
#include "storage/store/backing.hpp"
#include "storage/store/file_systems.hpp"
#include "storage/store/store.hpp"
#include "storage/store/superblock.hpp"

namespace assay::storage {
namespace {

constexpr std::uint64_t min_ring_bytes = 1u << 20;
constexpr int reader_limit_s = 1;  // how long a command that lists the store is waited for
constexpr int polls_per_s = 50;

// Locks the store exclusively. Waits up to 600 s for the background drain of a job that has ended,
// and up to 1 s for a command that lists the store. Returns whether the store is locked.
bool lock_alone(int fd) {
    constexpr int drain_limit_s = 600;
    for (int poll = 0; flock(fd, LOCK_EX | LOCK_NB); ++poll) {
        const bool drains = read_superblock(fd).phase == Phase::detached;
        if (poll > (drains ? drain_limit_s : reader_limit_s) * polls_per_s) return false;
        usleep(1'000'000 / polls_per_s);
    }
    return true;
}

std::uint64_t free_bytes_of_file_system(int fd) {
    struct statfs info{};
    if (fstatfs(fd, &info)) return 0;
    return static_cast<std::uint64_t>(info.f_bavail) * static_cast<std::uint64_t>(info.f_bsize);
}

// The size that a file of this process may have (ulimit -f); ~0: any. To exceed it would end the
// program with SIGXFSZ.
std::uint64_t file_size_limit() {
    rlimit limit{};
    const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? limit.rlim_cur : ~0ull;
}

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

class Store::Creation {
public:
    struct Request {
        const std::string& location;
        std::uint64_t size;
        std::uint32_t ranks;
        const std::string &job, &name, &keep;
    };
    Creation(Store& store, const Request& request, Failure& failure)
        : store_(store), request_(request), failure_(failure) {}

    // Returns false and sets the failure on error; undo() must follow.
    bool run();
    // Removes the file if this call has created it. An empty file is empty again.
    void undo();

private:
    bool find_path();
    bool open_and_lock();
    bool open_file();
    bool is_local();
    bool is_own();
    bool make();
    bool can_be_taken_over() const;
    bool map_kept_store();
    bool is_intact_since_restart() const;
    bool take_over();
    bool may_be_overwritten();
    std::uint64_t choose_bytes() const;
    bool make_new();
    bool is_large_enough(std::uint64_t bytes);
    void report_smaller(std::uint64_t bytes) const;
    bool set_bytes(std::uint64_t bytes);
    bool allocate_tables();
    bool share_lock();

    bool is_device() const { return store_.backing_ == Backing::device; }
    bool fail(std::string message) {
        failure_.message = std::move(message);
        return false;
    }

    Store& store_;
    const Request request_;
    Failure& failure_;
    Links links_ = Links::refused;
    bool created_file_ = false;
    bool extended_empty_file_ = false;
    SuperblockSummary found_;        // of the store that is at the path already
    std::uint64_t found_bytes_ = 0;  // of the file or device
    bool restarted_since_ = false;   // the machine, since the found store was made
};

std::unique_ptr<Store> Store::create(const std::string& location, std::uint64_t size,
                                     std::uint32_t ranks, const std::string& job,
                                     const std::string& name, Failure& failure,
                                     const std::string& keep) {
    std::unique_ptr<Store> store(new Store);
    Creation creation(*store, {location, size, ranks, job, name, keep}, failure);
    if (!creation.run()) {
        creation.undo();
        return nullptr;
    }
    store->same_pids_ = true;
    return store;
}

bool Store::Creation::run() { return find_path() && open_and_lock() && make() && share_lock(); }

bool Store::Creation::make() {
    found_ = read_superblock(store_.fd_);
    found_bytes_ = bytes_of(store_.fd_);
    restarted_since_ = found_.boot != boot_id();
    if (can_be_taken_over()) {
        if (!map_kept_store()) return false;
        if (is_intact_since_restart()) return allocate_tables() && take_over();
        store_.unmap();
        store_.replaced_damaged_ = true;
    }
    return may_be_overwritten() && make_new();
}

void Store::Creation::undo() {
    if (created_file_) unlink_file(store_.fd_, store_.path_);
    else if (extended_empty_file_ && ftruncate(store_.fd_, 0)) return;  // it reads as zero then
}

// ---- the location

bool Store::Creation::find_path() {
    const std::string& location = request_.location;
    struct stat info{}, parent{};
    if (stat(location.c_str(), &info) == 0) {
        if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode) && !is_dax_device(info))
            return fail(location +
                        " cannot be a store: it is neither a folder, a file nor a /dev/dax device");
        const bool folder = S_ISDIR(info.st_mode);
        store_.path_ = folder ? location + "/" + store_prefix + request_.name : location;
        links_ = folder ? Links::refused : Links::followed;
        return true;
    }
    store_.path_ = location;
    const auto slash = location.find_last_of('/');
    if (slash == std::string::npos) return true;
    const std::string folder = location.substr(0, std::max<std::size_t>(1, slash));
    if (stat(folder.c_str(), &parent) == 0 && S_ISDIR(parent.st_mode)) return true;
    return fail(location + " cannot be a store: there is no folder " + folder);
}

// The job that has the lock may remove its file at its end. Then another file or none is at the
// path, and the locked one is closed.
bool Store::Creation::open_and_lock() {
    constexpr int attempts = 10;
    for (int attempt = 0; attempt < attempts; ++attempt) {
        if (!open_file() || !is_local() || !is_own()) return false;
        if (!lock_alone(store_.fd_)) break;
        if (is_at(store_.fd_, store_.path_)) return true;
        close(std::exchange(store_.fd_, -1));
    }
    created_file_ = false;  // another job uses it
    return fail(store_.path_ + " is in use by another job");
}

bool Store::Creation::open_file() {
    const char* path = store_.path_.c_str();
    constexpr int flags = O_RDWR | O_CLOEXEC | O_CREAT;
    store_.fd_ = open(path, flags | O_EXCL, 0600);
    created_file_ = store_.fd_ >= 0;
    if (!created_file_ && errno == EEXIST) store_.fd_ = open_store_file(store_.path_, links_);
    if (store_.fd_ < 0) {
        const std::string reason = errno_text();
        struct stat info{};
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
            return fail(store_.path_ + " is a symbolic link" +
                        (links_ == Links::refused ? ", which is not followed"
                                                  : " that cannot be opened: " + reason) +
                        "; fix: remove it, or --store with its target");
        return fail(store_.path_ + " cannot be opened as a store: " + reason);
    }
    store_.backing_ = backing_of(store_.fd_);
    return true;
}

bool Store::Creation::is_local() {
    const char* system = incoherent_file_system(store_.fd_);
    if (!system) return true;
    return fail(request_.location + " cannot be a store: it is on " + system +
                ", which is not memory or storage of one node; fix: --store with a folder of the "
                "node, such as /dev/shm");
}

// Called before the lock is waited for, because another user may hold it as long as they like.
bool Store::Creation::is_own() {
    if (is_of_another_user(store_.fd_)) return fail(store_.path_ + " belongs to another user");
    if (!request_.keep.empty() && is_open_device(store_.fd_))
        return fail(store_.path_ +
                    " may be written by other users, who can plant data that later jobs read; "
                    "fix: chmod 600, or leave out --keep");
    return true;
}

// ---- a kept store

// A file from before a restart of the machine may lack data that were only in the page cache, so a
// kept store must be of this boot, or in persistent memory.
bool Store::Creation::can_be_taken_over() const {
    return found_.is_kept_as(request_.keep) && found_.version == store_version &&
           (!restarted_since_ || found_.persistent);
}

bool Store::Creation::map_kept_store() {
    const std::string& keep = request_.keep;
    if (found_.layout.ranks != request_.ranks)
        return fail("the store that is kept as " + keep + " has " +
                    std::to_string(found_.layout.ranks) + " ranks on this node, this job has " +
                    std::to_string(request_.ranks) + "; fix: assay io drop " + keep);
    if (!found_.fits(found_bytes_))
        return fail(store_.path_ + " is damaged; fix: assay io drop " + keep);
    store_.layout_ = found_.layout;
    return store_.map(found_.bytes, failure_);
}

bool Store::Creation::is_intact_since_restart() const {
    return !restarted_since_ || (store_.persistent() && store_.is_intact());
}

bool Store::Creation::take_over() {
    store_.restarted_ = restarted_since_;
    return store_.take_over(request_.job, failure_);
}

// ---- a new store

// A kept store of this name that cannot be taken over is replaced. A device without a store is
// taken whatever it holds: its user has named it for that.
bool Store::Creation::may_be_overwritten() {
    const std::string& path = store_.path_;
    if (!found_.is_store)
        return is_device() || is_zero(store_.fd_) ||
               fail(path +
                    " cannot be a store: it is a file with other data; fix: --store with a "
                    "folder of the node, such as /dev/shm, or with a new file");
    if (found_.is_kept_as(request_.keep) || found_.phase == Phase::clean ||
        found_.phase == Phase::formatting)
        return true;
    if (found_.version != store_version)
        return fail(path + " holds data of another version of Assay (job " + found_.job +
                    "); fix: recover them with that version");
    if (found_.phase == Phase::kept)
        return fail(path + " is kept as " + found_.keep + "; fix: --keep " + found_.keep +
                    ", or assay io drop " + found_.keep);
    return fail(path + " holds data of job " + found_.job +
                " that may not be in the file system yet; fix: assay io recover " + path);
}

std::uint64_t Store::Creation::choose_bytes() const {
    const std::uint64_t size = request_.size;
    std::uint64_t bytes = size;
    if (is_device()) {
        bytes = size && size < found_bytes_ ? size : found_bytes_;
    } else {
        if (!size) bytes = (free_bytes_of_file_system(store_.fd_) + found_bytes_) / 2;
        if (!size && store_.in_memory()) bytes = std::min(bytes, available_memory() / 4);
        bytes = std::min(bytes, file_size_limit());
    }
    return bytes / huge_page * huge_page;
}

bool Store::Creation::make_new() {
    const std::uint64_t bytes = choose_bytes();
    store_.layout_ = StoreLayout::fit(bytes, request_.ranks);
    if (!is_large_enough(bytes) || !set_bytes(bytes) || !store_.map(bytes, failure_) ||
        !allocate_tables())
        return false;
    report_smaller(bytes);
    store_.format(request_.job, request_.keep, store_.in_memory() || !found_bytes_);
    return true;
}

bool Store::Creation::is_large_enough(std::uint64_t bytes) {
    if (store_.layout_.ring_bytes >= min_ring_bytes) return true;
    const std::uint64_t limit = file_size_limit();
    const bool limited = !is_device() && (!request_.size || limit < request_.size) &&
                         bytes == limit / huge_page * huge_page;
    return fail(request_.location + " is too small for " + std::to_string(request_.ranks) +
                " ranks: " + in_mib(bytes) +
                (limited ? ", by the limit on the size of files (ulimit -f)" : "") +
                ", but each rank needs 6 MiB and the tables need 16 MiB" +
                (limited ? "; fix: ulimit -f unlimited" : ""));
}

// The user has asked for more than a file may have.
void Store::Creation::report_smaller(std::uint64_t bytes) const {
    if (!is_device() && file_size_limit() < request_.size)
        std::fprintf(stderr,
                     "assay io: the store has %s instead of %s, by the limit on the size of files "
                     "(ulimit -f)\n",
                     in_mib(bytes).c_str(), in_mib(request_.size).c_str());
}

bool Store::Creation::set_bytes(std::uint64_t bytes) {
    if (is_device()) return true;
    extended_empty_file_ = !found_bytes_;
    // A new tmpfs file reads as zero, as format() expects.
    if ((store_.in_memory() && ftruncate(store_.fd_, 0)) ||
        ftruncate(store_.fd_, static_cast<off_t>(bytes)))
        return fail(store_.path_ + " cannot be extended to " + in_mib(bytes) + ": " + errno_text());
    return true;
}

// Reserves the space of everything but the rings of data, which their writers allocate as they
// need it. In a tmpfs a read takes space too, and without any the program would end with SIGBUS.
bool Store::Creation::allocate_tables() {
    const StoreLayout& layout = store_.layout_;
    int error = store_.allocate(0, StoreLayout::ranks_offset());
    for (std::uint32_t rank = 0; rank < layout.ranks && !error; ++rank)
        error = store_.allocate(layout.head_offset(rank),
                                layout.data_offset(rank) - layout.head_offset(rank));
    return !error || fail(store_.path_ + " has no space left: " + std::strerror(error));
}

// The exclusive lock becomes a shared one, which the other ranks of the node hold too. The kernel
// releases the one before it grants the other (flock(2)), so another job may take the store in
// between. A command that lists the store is waited for.
bool Store::Creation::share_lock() {
    int poll = 0;
    while (flock(store_.fd_, LOCK_SH | LOCK_NB) && poll++ < reader_limit_s * polls_per_s)
        usleep(1'000'000 / polls_per_s);
    const char* job = store_.superblock().job;
    if (poll <= reader_limit_s * polls_per_s && is_at(store_.fd_, store_.path_) &&
        request_.job.compare(0, sizeof Superblock::job - 1, job) == 0)
        return true;
    created_file_ = extended_empty_file_ = false;  // another job uses it
    return fail(store_.path_ + " was taken by another job");
}

}  // namespace assay::storage
