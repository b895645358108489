// Opening and closing: identifies the file, checks whether it was changed from outside, and drains
// it.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "storage/accelerator/file.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {
namespace {

// The open files by handle. Every call looks one up, from any thread.
struct Files {
    std::shared_mutex lock;
    std::unordered_map<MPI_File, std::unique_ptr<AcceleratedFile>> by_handle;
};
Files& files() {
    static auto* open = new Files;  // outlives every destructor
    return *open;
}

// Removes the file system prefix that ROMIO and OMPIO accept ("ufs:").
std::string strip_prefix(const char* name) {
    const char* colon = std::strchr(name, ':');
    const char* slash = std::strchr(name, '/');
    const bool typed = colon && colon - name >= 2 && (!slash || colon < slash);
    return typed ? colon + 1 : name;
}

std::int64_t nanoseconds(const timespec& time) {
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Before Linux 6.13 file times have the resolution of the kernel's tick. A change from outside in
// the same tick as the last write would not be noticed at the next open, so close waits for the
// tick's end.
void wait_for_clock_tick(const timespec& last_write) {
    static const bool fine_grained = [] {
        utsname info{};
        if (uname(&info) != 0) return false;
        char* rest = nullptr;
        const long major = std::strtol(info.release, &rest, 10);
        if (*rest != '.') return false;
        const long minor = std::strtol(rest + 1, nullptr, 10);
        return major > 6 || (major == 6 && minor >= 13);
    }();
    if (fine_grained) return;
    for (int attempt = 0; attempt < 20; ++attempt) {
        timespec now{};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (nanoseconds(now) > nanoseconds(last_write)) return;
        usleep(1000);
    }
}

// The highest error code of all ranks, on every rank.
int worst_code(MPI_Comm comm, int code) {
    int worst = code;
    PMPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm);
    return worst;
}

bool is_accelerated(Job& job, const std::string& name, MPI_Info info) {
    if (info != MPI_INFO_NULL) {
        char value[16]{};
        int is_set = 0;
        PMPI_Info_get(info, "assay_io", sizeof value - 1, value, &is_set);
        if (is_set) return std::strcmp(value, "disable") != 0;
    }
    return job.settings().covers(name);
}

// Calls the error handler of MPI_FILE_NULL, as for errors of opening and closing. Not every MPI
// allows that without a file, so one is opened.
int to_default_handler(int code) {
    MPI_Errhandler handler;
    MPI_File file;
    PMPI_File_get_errhandler(MPI_FILE_NULL, &handler);
    if (PMPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &file) ==
        MPI_SUCCESS) {
        PMPI_File_set_errhandler(file, handler);
        PMPI_File_call_errhandler(file, code);
        PMPI_File_close(&file);
    }
    PMPI_Errhandler_free(&handler);
    return code;
}

constexpr int handled_modes = MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_APPEND | MPI_MODE_SEQUENTIAL;

}  // namespace

AcceleratedFile* AcceleratedFile::find(MPI_File handle) {
    if (!Job::current()) return nullptr;
    auto& open = files();
    std::shared_lock hold(open.lock);
    const auto entry = open.by_handle.find(handle);
    return entry == open.by_handle.end() ? nullptr : entry->second.get();
}

int AcceleratedFile::open(MPI_Comm comm, const char* name, int mode, MPI_Info info,
                          MPI_File* handle) {
    Job* job = Job::current();
    const std::string path = strip_prefix(name);
    if (!job || !is_accelerated(*job, path, info))
        return PMPI_File_open(comm, name, mode, info, handle);
    std::unique_ptr<AcceleratedFile> file(new AcceleratedFile);
    file->job_ = job;
    PMPI_Comm_dup(comm, &file->comm_);
    PMPI_Comm_rank(file->comm_, &file->rank_);
    PMPI_Comm_size(file->comm_, &file->size_);
    int range[2] = {mode, -mode};
    PMPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MAX, file->comm_);
    if (range[0] != -range[1]) return to_default_handler(MPI_ERR_NOT_SAME);
    if (mode & MPI_MODE_SEQUENTIAL && mode & MPI_MODE_RDWR)
        return to_default_handler(MPI_ERR_UNSUPPORTED_OPERATION);

    // The first rank creates the file if the mode asks for it; then the others open it.
    int code = MPI_SUCCESS;
    if (file->rank_ == 0)
        code = PMPI_File_open(MPI_COMM_SELF, name, mode & ~handled_modes, info, &file->mpi_file_);
    int first = code;
    PMPI_Bcast(&first, 1, MPI_INT, 0, file->comm_);
    if (first) return file->rank_ == 0 ? first : to_default_handler(first);
    if (file->rank_ != 0)
        code = PMPI_File_open(MPI_COMM_SELF, name,
                              mode & ~(handled_modes | MPI_MODE_CREATE | MPI_MODE_EXCL), info,
                              &file->mpi_file_);
    if (worst_code(file->comm_, code)) {
        if (!code) PMPI_File_close(&file->mpi_file_);
        return code ? code : to_default_handler(MPI_ERR_OTHER);
    }

    char absolute[PATH_MAX];
    file->path_ = realpath(path.c_str(), absolute) ? absolute : path;
    code = file->claim_slot(mode);
    if (worst_code(file->comm_, code)) {
        // The file cannot be accelerated.
        if (!code) job->store().file(file->slot_).users.fetch_sub(1);
        job->report_once(
            "too many open files, too long a path or a rank outside of MPI_COMM_WORLD: " + path +
            " uses the MPI's own I/O");
        PMPI_File_close(&file->mpi_file_);
        if (job->settings().required) PMPI_Abort(job->world(), 2);
        return PMPI_File_open(comm, name, mode & ~(MPI_MODE_CREATE | MPI_MODE_EXCL), info, handle);
    }
    file->join();
    *handle = file->mpi_file_;
    std::unique_lock hold(files().lock);
    files().by_handle[*handle] = std::move(file);
    return MPI_SUCCESS;
}

// Local: sets the nodes that take part and the slot, and drops what is known of a changed file.
int AcceleratedFile::claim_slot(int mode) {
    mode_ = mode;
    MPI_Group world, mine;
    PMPI_Comm_group(job_->world(), &world);
    PMPI_Comm_group(comm_, &mine);
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    for (int k = 0; k < size_; ++k) ranks[static_cast<std::size_t>(k)] = k;
    world_ranks_.resize(ranks.size());
    PMPI_Group_translate_ranks(mine, size_, ranks.data(), world, world_ranks_.data());
    PMPI_Group_free(&world);
    PMPI_Group_free(&mine);
    for (int rank : world_ranks_) {
        if (rank == MPI_UNDEFINED) return 1;
        one_node_ &= job_->node_of(rank) == job_->node();
    }
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info{};
    if (fd_ >= 0 ? fstat(fd_, &info) : stat(path_.c_str(), &info)) return 1;
    file_size_ = static_cast<std::uint64_t>(info.st_size);
    Store& store = job_->store();
    slot_ = acquire_slot(store, info.st_dev, info.st_ino, path_);
    if (slot_ == file_slots) return 1;
    auto& slot = store.file(slot_);
    {
        // The first process that opens it again checks whether it was changed from outside.
        TableLock lock(store);
        const bool was_closed = slot.size.load() >= 0;
        if (was_closed && slot.users.load() == 1 &&
            (slot.size != info.st_size || slot.mtime_ns != nanoseconds(info.st_mtim) ||
             slot.ctime_ns != nanoseconds(info.st_ctim))) {
            slot.valid_from = store.now();
            slot.end = 0;
        }
        if (was_closed && slot.users.load() == 1) slot.size = -1;  // in use
    }
    view_ = flatten(MPI_BYTE);
    return MPI_SUCCESS;
}

// Collective: allocates a shared pointer and makes all writes so far visible.
void AcceleratedFile::join() {
    if (rank_ == 0) {
        Store& store = job_->store();
        shared_pointer_slot_ = shared_pointer_slots;
        auto* used = store.superblock().shared_pointer_used;
        std::uint8_t free = 0;
        for (std::uint32_t k = 0;
             k < shared_pointer_slots && shared_pointer_slot_ == shared_pointer_slots;
             ++k, free = 0)
            if (used[k].compare_exchange_strong(free, 1)) shared_pointer_slot_ = k;
        if (shared_pointer_slot_ == shared_pointer_slots)
            shared_pointer_slot_ = 0;  // hundreds of open files: they share one pointer
        store.superblock().shared_pointers[shared_pointer_slot_] = 0;
    }
    PMPI_Bcast(&shared_pointer_slot_, 1, MPI_UINT32_T, 0, comm_);
    shared_pointer_home_ = world_ranks_[0];
    if (!one_node_) {
        const std::uint32_t mine[2] = {slot_, job_->store().file(slot_).generation.load()};
        std::vector<std::uint32_t> slots(2 * static_cast<std::size_t>(size_));
        PMPI_Allgather(mine, 2, MPI_UINT32_T, slots.data(), 2, MPI_UINT32_T, comm_);
        std::lock_guard hold(job_->lock());
        for (std::size_t k = 0; k < world_ranks_.size(); ++k)
            if (const int node = job_->node_of(world_ranks_[k]); node != job_->node())
                job_->directory().share(slot_, node, slots[2 * k], slots[2 * k + 1]);
    }
    synchronize();
    if (mode_ & MPI_MODE_APPEND) {
        position_ = static_cast<std::int64_t>(current_size(~0ull));
        std::uint64_t before = 0;
        if (rank_ == 0) shared_pointer(position_.load(), true, before);
        PMPI_Barrier(comm_);
    }
}

// Drains what this rank has written and resolves its conflicts.
int AcceleratedFile::flush() {
    const std::uint64_t upto = job_->store().head(job_->local_rank()).tail.load();
    bool good = job_->drain().finish(job_->local_rank(), upto);
    if (good && !one_node_) {
        std::lock_guard hold(job_->lock());
        good = job_->resolver().resolve(upto);
    }
    if (!good && rank_ == 0)
        std::fprintf(
            stderr,
            "assay io: %s could not be written to the file system: %s; its data "
            "stay in the nodes' stores\n",
            path_.c_str(),
            std::strerror(static_cast<int>(job_->store().superblock().drain_failed.load())));
    return good ? MPI_SUCCESS : MPI_ERR_IO;
}

// Collective: whether any rank's data conflict with another node's. Such files are drained before
// close returns, because later drains of several nodes have no order.
bool AcceleratedFile::conflicts_exist() {
    if (one_node_) return false;
    bool conflict = false;
    {
        std::lock_guard hold(job_->lock());
        conflict = job_->resolver().has_conflicts();
    }
    return worst_code(comm_, conflict);
}

int AcceleratedFile::close(MPI_File* handle) {
    std::unique_ptr<AcceleratedFile> file;
    {
        std::unique_lock hold(files().lock);
        const auto entry = files().by_handle.find(*handle);
        file = std::move(entry->second);
        files().by_handle.erase(entry);
    }
    Job& job = *file->job_;
    auto& slot = job.store().file(file->slot_);
    int code = MPI_SUCCESS;
    const bool deletes = file->mode_ & MPI_MODE_DELETE_ON_CLOSE;
    file->synchronize();
    if (deletes) slot.deleted = 1;
    else if (!job.settings().detach || file->conflicts_exist()) code = file->flush();
    PMPI_Barrier(file->comm_);
    code = worst_code(file->comm_, code);
    struct stat info{};
    if (!deletes && stat(file->path_.c_str(), &info) == 0) {
        wait_for_clock_tick(info.st_mtim);
        slot.mtime_ns = nanoseconds(info.st_mtim);
        slot.ctime_ns = nanoseconds(info.st_ctim);
        slot.size = job.settings().detach ? -1 : info.st_size;
    }
    if (file->rank_ == 0)
        job.store().superblock().shared_pointer_used[file->shared_pointer_slot_] = 0;
    slot.users.fetch_sub(1);
    if (deletes && file->rank_ == 0) unlink(file->path_.c_str());
    PMPI_Barrier(file->comm_);
    const int closed = PMPI_File_close(handle);
    if (code) return to_default_handler(code);
    return closed;
}

int AcceleratedFile::remove(const char* name, MPI_Info info) {
    Job* job = Job::current();
    struct stat status{};
    const bool exists = job && stat(strip_prefix(name).c_str(), &status) == 0;
    const int code = PMPI_File_delete(name, info);
    if (code || !exists) return code;
    TableLock lock(job->store());
    const auto slot = find_slot(job->store(), status.st_dev, status.st_ino);
    if (slot != file_slots) job->store().file(slot).deleted = 1;
    return code;
}

AcceleratedFile::~AcceleratedFile() {
    if (fd_ >= 0) ::close(fd_);
    if (lock_fd_ >= 0) ::close(lock_fd_);
    if (comm_ != MPI_COMM_NULL) PMPI_Comm_free(&comm_);
}

}  // namespace assay::storage
