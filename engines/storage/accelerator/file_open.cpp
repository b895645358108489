// Opening and closing of accelerated files: decides whether a file is accelerated, identifies it,
// chooses how it is written, and at close drains it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <unordered_map>

#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/file.hpp"
#include "storage/accelerator/file_info.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/accelerator/stock_open.hpp"
#include "storage/accelerator/system_file.hpp"
#include "storage/store/background.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_systems.hpp"
#include "storage/store/other_jobs.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

// The accelerated open files by handle. Every MPI-IO call searches it, from any thread.
struct FileRegistry {
    std::shared_mutex lock;
    std::unordered_map<MPI_File, std::unique_ptr<AcceleratedFile>> by_handle;
};
FileRegistry& open_files() {
    static auto* registry = new FileRegistry;  // never destroyed, so every destructor can use it
    return *registry;
}

// What all ranks want or have. The MPI allows the info and the name of a file to differ between
// them.
struct Agreement {
    bool accelerated, memory, same_mode;
};

// Collective. The first rank with an unknown info value reports it.
Agreement agree(Job& job, MPI_Comm comm, const InfoKeys& keys, int mode) {
    int rank, size;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    const int report_order = keys.unknown.empty() ? 0 : size - rank;
    int maxima[] = {!keys.accelerated, !keys.memory, mode, -mode, report_order};
    PMPI_Allreduce(MPI_IN_PLACE, maxima, 5, MPI_INT, MPI_MAX, comm);
    if (report_order && report_order == maxima[4]) job.report_once_on_this_rank(keys.unknown);
    return {!maxima[0], !maxima[1], maxima[2] == -maxima[3]};
}

// Modes that this library implements itself, so the MPI library opens the file without them.
constexpr int handled_modes = MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_APPEND | MPI_MODE_SEQUENTIAL;
constexpr int creating_modes = MPI_MODE_CREATE | MPI_MODE_EXCL;

// The permissions that the MPI libraries give a new file. They find out the umask in the same way.
mode_t default_permissions() {
    const mode_t mask = umask(022);
    umask(mask);
    return 0666 & ~mask;
}

// Makes sure that a file exists, as the mode asks for it. Returns false where that is the MPI
// library's part: where it can take hints (of Lustre), and where there is an error to report. A
// file that exists is not opened, because closing it would end the program's locks of it.
bool make_exist(const std::string& path, int mode) {
    const int access = mode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
    if (access != MPI_MODE_WRONLY && access != MPI_MODE_RDWR) return false;
    const std::size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const Descriptor folder(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (folder.number() < 0 || !is_local(folder.number())) return false;
    const Descriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, default_permissions()));
    if (file.number() >= 0) return true;
    FileStatus status;
    return errno == EEXIST && !(mode & MPI_MODE_EXCL) && read_status(path.c_str(), status) == 0 &&
           status.regular;
}

// Collective: opens the file on every rank, in the same mode. If it may have to be created, one
// rank does that before the others open it. Returns this rank's code; if `first` is not 0, it is
// the error class of the rank that should have created the file, and other ranks have not tried.
int open_on_each_rank(MPI_Comm comm, const char* name, const std::string& path, int mode,
                      MPI_Info info, MPI_File* file, int& first) {
    int rank, size;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    mode &= ~handled_modes;
    MPI_Info own_info = info_of_one_rank(info);
    const auto open = [&](int own_mode) {
        return PMPI_File_open(MPI_COMM_SELF, name, own_mode, own_info, file);
    };
    int code = MPI_SUCCESS;
    if (mode & MPI_MODE_CREATE && size > 1) {
        const bool exists = rank == 0 && path == name && make_exist(path, mode);
        if (rank == 0 && !exists) code = open(mode);
        int outcome[] = {error_class_of(code), exists};
        PMPI_Bcast(outcome, 2, MPI_INT, 0, comm);
        first = outcome[0];
        if (!first && (rank != 0 || outcome[1])) code = open(mode & ~creating_modes);
    } else {
        code = open(mode);
    }
    if (own_info != MPI_INFO_NULL) PMPI_Info_free(&own_info);
    return code;
}

}  // namespace

AcceleratedFile* AcceleratedFile::find(MPI_File handle) {
    if (!Job::current()) return nullptr;
    auto& registry = open_files();
    std::shared_lock guard(registry.lock);
    const auto entry = registry.by_handle.find(handle);
    return entry == registry.by_handle.end() ? nullptr : entry->second.get();
}

int AcceleratedFile::open(MPI_Comm comm, const char* name, int mode, MPI_Info info,
                          MPI_File* handle) {
    Job* job = Job::current();
    if (!job || comm == MPI_COMM_NULL) return PMPI_File_open(comm, name, mode, info, handle);
    const std::string path = strip_prefix(name, any_prefix);
    const InfoKeys keys = read_info_keys(info, job->settings(), path);
    const Agreement agreed = agree(*job, comm, keys, mode);
    if (!agreed.accelerated) return open_without_store(*job, comm, name, mode, info, handle);
    if (!agreed.same_mode) return call_default_handler(MPI_ERR_NOT_SAME);
    if (mode & MPI_MODE_SEQUENTIAL && mode & MPI_MODE_RDWR)
        return call_default_handler(MPI_ERR_AMODE);
    std::unique_ptr<AcceleratedFile> file(new AcceleratedFile);
    file->job_ = job;
    PMPI_Comm_size(comm, &file->size_);
    PMPI_Comm_rank(comm, &file->rank_);
    // MPIs have some thousand communicators, and files of one rank are often many.
    if (file->size_ == 1) file->comm_ = job->self();
    else PMPI_Comm_dup(comm, &file->comm_);

    int first = MPI_SUCCESS;
    int code = open_on_each_rank(file->comm_, name, path, mode, info, &file->mpi_file_, first);
    if (first) return file->rank_ == 0 ? code : call_default_handler(first);
    file->path_ = path;
    file->aggregator_hints_ = keys.aggregators;
    const bool in_world = file->find_nodes();
    int worst[] = {error_class_of(code), code ? MPI_SUCCESS : file->wait_for_other_jobs()};
    PMPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_INT, MPI_MAX, file->comm_);
    if (worst[0] || worst[1]) {
        if (!code) PMPI_File_close(&file->mpi_file_);
        return code ? code : call_default_handler(worst[0] ? worst[0] : worst[1]);
    }
    if (!file->acquire_resources(mode, in_world)) {
        if (const char* system =
                file->descriptor_ ? incoherent_file_system(file->descriptor_->number()) : nullptr)
            job->report_once(std::string("files on ") + system +
                             " use the MPI's own I/O: the hosts' caches and locks of that file "
                             "system are not kept alike");
        else
            job->report_once(
                path +
                " uses the MPI's own I/O: it is not a regular file with a name, or its path is too "
                "long, or too many files are open, or a rank is outside of MPI_COMM_WORLD");
        PMPI_File_close(&file->mpi_file_);
        if (job->settings().required) PMPI_Abort(job->world(), 2);
        return open_without_store(*job, comm, name, mode & ~(MPI_MODE_CREATE | MPI_MODE_EXCL), info,
                                  handle);
    }
    file->choose_sync_level(agreed.memory);
    file->choose_route();
    file->synchronize_after_open();
    code = file->wait_for_other_nodes();
    if (!code) code = file->begin_position();
    if (code) {
        file->release_resources(true, false);
        PMPI_File_close(&file->mpi_file_);
        return call_default_handler(code);
    }
    *handle = file->mpi_file_;
    std::unique_lock guard(open_files().lock);
    open_files().by_handle[*handle] = std::move(file);
    return MPI_SUCCESS;
}

// Finds which nodes of the job have ranks of the communicator. Returns false if a rank is not in
// MPI_COMM_WORLD.
bool AcceleratedFile::find_nodes() {
    MPI_Group world, file_group;
    PMPI_Comm_group(job_->world(), &world);
    PMPI_Comm_group(comm_, &file_group);
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    for (int k = 0; k < size_; ++k) ranks[static_cast<std::size_t>(k)] = k;
    world_ranks_.resize(ranks.size());
    PMPI_Group_translate_ranks(file_group, size_, ranks.data(), world, world_ranks_.data());
    PMPI_Group_free(&world);
    PMPI_Group_free(&file_group);
    for (int k = 0; k < size_; ++k) {
        const int world_rank = world_ranks_[static_cast<std::size_t>(k)];
        if (world_rank == MPI_UNDEFINED) return false;
        const int node = job_->node_of(world_rank);
        nodes_.push_back(node);
        if (node == job_->node() && k < rank_) is_first_of_node_ = false;
    }
    const std::set<int> nodes(nodes_.begin(), nodes_.end());
    is_on_one_node_ = nodes.size() == 1;
    has_all_nodes_ = static_cast<int>(nodes.size()) == job_->nodes();
    return true;
}

// Waits until the file system has the data that other jobs on this node have acknowledged in
// memory. Returns an error class.
int AcceleratedFile::wait_for_other_jobs() {
    FileStatus status;
    std::string error;
    if (is_first_of_node_ && read_status(path_.c_str(), status) == 0 && status.regular)
        error = storage::wait_for_other_jobs(job_->store(), status, job_->settings().wait_s);
    if (!error.empty())
        std::fprintf(stderr, "assay io: %s cannot be opened: %s\n", path_.c_str(), error.c_str());
    return error.empty() ? MPI_SUCCESS : MPI_ERR_IO;
}

// Opens the descriptor for all access to the file system. Returns false if that fails, or if the
// file cannot be accelerated.
bool AcceleratedFile::open_descriptor(FileStatus& status) {
    const int access = mode_ & MPI_MODE_RDONLY   ? O_RDONLY
                       : mode_ & MPI_MODE_WRONLY ? O_WRONLY
                                                 : O_RDWR;
    const int fd = ::open(path_.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return false;
    descriptor_ = std::make_shared<const Descriptor>(fd);
    name_ = absolute(path_);
    path_ = path_of(fd, path_);
    return read_status(fd, status) == 0 && status.regular && status.links && !is_kernel_file(fd) &&
           !incoherent_file_system(fd) && !descriptors_are_scarce(fd);
}

bool AcceleratedFile::claim_shared_pointer() {
    auto* used = job_->store().superblock().shared_pointer_used;
    for (std::uint32_t k = 0; k < shared_pointer_slots; ++k) {
        std::uint8_t free = 0;
        if (!used[k].compare_exchange_strong(free, 1)) continue;
        shared_pointer_slot_ = k;
        job_->store().superblock().shared_pointers[k] = 0;
        return true;
    }
    return false;
}

// Collective: acquires the descriptor, the slot of the file table and the shared pointer. Returns
// false if a rank cannot, or if the ranks have opened different files; then all are released again.
bool AcceleratedFile::acquire_resources(int mode, bool in_world) {
    mode_ = mode;
    Store& store = job_->store();
    FileStatus status;
    bool succeeded = in_world && open_descriptor(status);
    slot_ = succeeded ? acquire_slot(store, status, path_) : file_slots;
    const bool has_slot = slot_ != file_slots;
    const bool has_pointer = has_slot && rank_ == 0 && claim_shared_pointer();
    succeeded = has_slot && (has_pointer || rank_ != 0);
    // The maximum and the negated minimum of the inodes differ if the ranks have different files.
    // Only the first rank has a slot of a shared pointer; the others have 0.
    const auto inode = static_cast<std::int64_t>(status.inode);
    std::int64_t agreed[] = {!succeeded, inode, -inode, shared_pointer_slot_};
    PMPI_Allreduce(MPI_IN_PLACE, agreed, 4, MPI_INT64_T, MPI_MAX, comm_);
    if (!agreed[0] && agreed[1] == -agreed[2]) {
        shared_pointer_slot_ = static_cast<std::uint32_t>(agreed[3]);
        if (!(mode_ & MPI_MODE_RDONLY)) job_->handles().hold(slot_, descriptor_);
        seen_failed_syncs_ = store.file(slot_).failed_syncs.load();
        view_ = flatten(MPI_BYTE);
        return true;
    }
    if (has_pointer) store.superblock().shared_pointer_used[shared_pointer_slot_] = 0;
    if (has_slot) release_slot(store, slot_, nullptr);
    return false;
}

// Collective: makes all writes of the file so far visible to all ranks, and tells each node the
// slots of the other nodes.
void AcceleratedFile::synchronize_after_open() {
    if (!is_on_one_node_) {
        job_->store().file(slot_).shared = 1;
        const auto& file = job_->store().file(slot_);
        const SlotOfNode own{slot_, file.generation.load(), file.valid_from.load()};
        std::vector<SlotOfNode> slots(static_cast<std::size_t>(size_));
        PMPI_Allgather(&own, sizeof own, MPI_BYTE, slots.data(), sizeof own, MPI_BYTE, comm_);
        std::lock_guard guard(job_->lock());
        for (std::size_t k = 0; k < world_ranks_.size(); ++k)
            if (const int node = job_->node_of(world_ranks_[k]); node != job_->node())
                job_->directory().add_remote_slot(slot_, node, slots[k]);
    }
    {
        std::lock_guard guard(job_->lock());
        job_->directory().check(slot_);
    }
    synchronize();
}

// Collective: after close and a barrier an open sees what all nodes have written. A process finds
// that in the other nodes' stores if it knows the file's slots there. One that was in no
// communicator with all nodes waits until the file has everything.
int AcceleratedFile::wait_for_other_nodes() {
    if (job_->nodes() == 1) return MPI_SUCCESS;
    const Store& store = job_->store();
    lower_end(store, slot_);
    bool succeeded = true;
    if (spans_nodes() && !has_all_nodes_) {
        std::lock_guard guard(job_->lock());
        if (!job_->directory().knows_all_slots(slot_))
            succeeded = job_->resolver().wait_until_pushed(Push::sync, store.now(), true);
    }
    if (!succeeded)
        std::fprintf(stderr,
                     "assay io: %s cannot be opened: a node does not answer, or cannot write the "
                     "data that it has of it\n",
                     path_.c_str());
    return worst_error_class(comm_, succeeded ? MPI_SUCCESS : MPI_ERR_IO);
}

// Collective: MPI_MODE_APPEND begins at the end of the file.
int AcceleratedFile::begin_position() {
    if (!(mode_ & MPI_MODE_APPEND)) return MPI_SUCCESS;
    MPI_Offset end = 0;
    std::uint64_t agreed[2] = {0, 0};  // the end, and the error class of the first rank
    if (rank_ == 0) {
        std::uint64_t before = 0;
        const int code = get_size(&end);
        if (!code) update_shared_file_pointer(end, true, before);
        agreed[0] = static_cast<std::uint64_t>(end);
        agreed[1] = static_cast<std::uint64_t>(code);
    }
    PMPI_Bcast(agreed, 2, MPI_UINT64_T, 0, comm_);
    position_ = static_cast<std::int64_t>(agreed[0]);
    return static_cast<int>(agreed[1]);
}

// Collective: chooses whether close and sync wait for the file system. They must if a node has not
// opened the file: a rank of that node that opens it later could not know that the file system
// lacks data. `wanted`: all ranks want that they do not.
void AcceleratedFile::choose_sync_level(bool wanted) {
    bool memory = wanted && !(mode_ & MPI_MODE_RDONLY);
    if (memory && !has_all_nodes_) {
        job_->report_once(path_ + " and other files that not all nodes open: until file");
        memory = false;
    }
    std::string error;
    if (memory && is_first_of_node_ && !job_->start_background_drain(error)) {
        job_->report_no_background_drain(error, path_);
        memory = false;
    }
    if (wanted)
        until_memory_ =
            worst_error_class(comm_, memory ? MPI_SUCCESS : MPI_ERR_OTHER) == MPI_SUCCESS;
    if (job_->store().superblock().background.load() && is_first_of_node_)
        request_background_open(job_->store());
}

// Releases what acquire_resources() has acquired. `complete`: the file system has the file's data;
// `handed_over`: the background drain holds the file.
void AcceleratedFile::release_resources(bool complete, bool handed_over) {
    Store& store = job_->store();
    FileStatus status;
    const bool is_state_known = complete && !store.file(slot_).acknowledged.load() &&
                                read_status(descriptor_->number(), status) == 0;
    // Data on the direct route are read from the file, so changes by others need not be noticed.
    if (is_state_known && store.file(slot_).route.load() != Route::direct)
        wait_for_clock_tick(descriptor_->number(), status.mtime_ns);
    if (rank_ == 0) store.superblock().shared_pointer_used[shared_pointer_slot_] = 0;
    release_slot(store, slot_, is_state_known ? &status : nullptr);
    if (mode_ & MPI_MODE_RDONLY) return;
    // After a failed fsync the store may have nothing that can be written again. Where several
    // nodes have written the same bytes this node's may be written again, until they are settled.
    const bool is_settled = !spans_nodes() || store.file(slot_).settled.load() >=
                                                  store.file(slot_).drained_before.load();
    if (handed_over || ((complete || is_durable(store, slot_)) && is_settled))
        job_->handles().release(slot_, descriptor_);
    else job_->keep_open(slot_, descriptor_);
}

int AcceleratedFile::close(MPI_File* handle) {
    std::unique_ptr<AcceleratedFile> file;
    {
        std::unique_lock guard(open_files().lock);
        const auto entry = open_files().by_handle.find(*handle);
        file = std::move(entry->second);
        open_files().by_handle.erase(entry);
    }
    Job& job = *file->job_;
    int code = MPI_SUCCESS;
    file->synchronize();
    const bool deletes = file->mode_ & MPI_MODE_DELETE_ON_CLOSE;
    const bool is_dropped = deletes && file->has_last_name();
    const bool complete =
        !is_dropped && (deletes || !file->until_memory_ || file->have_conflicts() ||
                        !file->hand_to_background_drain());
    if (complete) code = file->make_durable();
    if (code) file->note_lost_ranges();
    // What the first rank of a node has found settled, and that all may delete.
    if (deletes || job.nodes() > 1) PMPI_Barrier(file->comm_);
    if (deletes) {
        if (file->rank_ == 0) file->unlink_name();
        PMPI_Barrier(file->comm_);
    }
    FileStatus status;
    // A file that lost its name while it was open can never be opened again.
    const bool is_deleted = (deletes || complete) &&
                            read_status(file->descriptor_->number(), status) == 0 && !status.links;
    file->release_resources(complete && !code, !complete && !is_dropped);
    PMPI_Barrier(file->comm_);
    // The data are dropped with the file's last name, unless another handle has the file open.
    if (is_deleted) {
        drop_deleted_file(job.store(), status);
        job.close_deleted_files();
    }
    const int closed = PMPI_File_close(handle);
    if (code) return call_default_handler(code);
    return closed;
}

// Deletes the name by which the file was opened, if it still is a name of the file: after a rename
// another file may have it. A link is deleted, not what it leads to.
void AcceleratedFile::unlink_name() const {
    FileStatus status, named;
    if (read_status(descriptor_->number(), status) == 0 && read_status(name_.c_str(), named) == 0 &&
        status.device == named.device && status.inode == named.inode)
        unlink(name_.c_str());
}

// Collective: whether the name by which the file was opened is its only one, on all ranks. It is
// not if the file was renamed or has a hard link, or if the name is a symbolic link.
bool AcceleratedFile::has_last_name() const {
    FileStatus status, named;
    const bool single = read_status(descriptor_->number(), status) == 0 && status.links <= 1 &&
                        !is_symbolic_link(name_) && read_status(name_.c_str(), named) == 0 &&
                        status.device == named.device && status.inode == named.inode;
    return worst_error_class(comm_, single ? MPI_SUCCESS : MPI_ERR_OTHER) == MPI_SUCCESS;
}

int AcceleratedFile::remove(const char* name, MPI_Info info) {
    Job* job = Job::current();
    // The name may be a link, so it is asked afterwards whether the file has lost its last name.
    const Descriptor file(
        job ? ::open(strip_prefix(name, any_prefix).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1);
    const int code = PMPI_File_delete(name, info);
    FileStatus status;
    if (!code && file.number() >= 0 && read_status(file.number(), status) == 0 && status.regular &&
        !status.links)
        drop_deleted_file(job->store(), status);
    return code;
}

AcceleratedFile::~AcceleratedFile() {
    if (lock_fd_ >= 0) ::close(lock_fd_);
    if (comm_ != MPI_COMM_NULL && size_ > 1) PMPI_Comm_free(&comm_);
}

}  // namespace assay::storage
