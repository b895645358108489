// The state of an accelerated file besides its data: size, view, file pointers, atomicity, and
// synchronization between ranks.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "storage/accelerator/comm_epoch.hpp"
#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/file.hpp"
#include "storage/accelerator/file_info.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/store/durability.hpp"

namespace assay::storage {

int AcceleratedFile::raise(int code) {
    if (!code) return code;
    // Not locked during the call: a handler may do I/O, or leave it by an exception.
    {
        const std::lock_guard wait_until_it_is_set(handler_lock_);
    }
    PMPI_File_call_errhandler(mpi_file_, code);
    return code;
}

// ---- synchronization

// Collective: afterwards every earlier write of any rank is visible to every rank.
void AcceleratedFile::synchronize() {
    std::uint64_t latest = job_->store().now();
    PMPI_Allreduce(MPI_IN_PLACE, &latest, 1, MPI_UINT64_T, MPI_MAX,
                   comm_);  // all earlier writes are published now
    job_->store().advance_clock(latest + 1);
    std::lock_guard guard(job_->lock());
    job_->directory().scan_node(true);
    job_->directory().note_synchronization();
}

int AcceleratedFile::sync() {
    if (bypass_) return without_handler([&] { return PMPI_File_sync(mpi_file_); });
    synchronize();
    if (mode_ & MPI_MODE_RDONLY)
        return MPI_ERR_READ_ONLY;  // as ROMIO; the ranks have met all the same
    return hand_to_background_drain() ? MPI_SUCCESS : make_durable();
}

// ---- size

int AcceleratedFile::get_size(MPI_Offset* size) {
    std::lock_guard guard(job_->lock());
    if (!refresh_directory()) return MPI_ERR_IO;
    *size = static_cast<MPI_Offset>(current_size(~0ull));
    return MPI_SUCCESS;
}

// Of a call that changes the size; the ranks have opened the file in the same mode.
int AcceleratedFile::check_resize(MPI_Offset size) const {
    if (mode_ & MPI_MODE_RDONLY) return MPI_ERR_READ_ONLY;
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    return size < 0 ? MPI_ERR_ARG : MPI_SUCCESS;
}

int AcceleratedFile::set_size(MPI_Offset size) {
    if (const int code = check_resize(size)) return code;
    synchronize();
    // Nodes without a rank of this communicator may have written beyond the size that is known.
    int code = job_->nodes() > 1 && !has_all_nodes_ ? drain_all() : MPI_SUCCESS;
    MPI_Offset known_size = 0;
    if (!code) code = get_size(&known_size);
    auto old_size = static_cast<std::uint64_t>(known_size);
    PMPI_Allreduce(MPI_IN_PLACE, &old_size, 1, MPI_UINT64_T, MPI_MAX, comm_);
    code = worst_error_class(comm_, code);
    // Data that are cut off must not be drained later.
    if (!code && static_cast<std::uint64_t>(size) < old_size) code = drain_all();
    if (code) return code;
    auto& slot = job_->store().file(slot_);
    if (rank_ == 0 && ftruncate(descriptor_->number(), size)) code = mpi_error(errno);
    // A store that outlives a power failure has the truncation, so the file must have it, too.
    if (rank_ == 0 && !code && job_->store().persistent() && fsync(descriptor_->number()))
        code = mpi_error(errno);
    if (is_first_of_node_) note_modified(job_->store(), slot_, descriptor_->number());
    code = worst_error_class(comm_, code);
    advance_comm_epoch();
    if (code) return code;
    slot.end = static_cast<std::uint64_t>(size);
    ledger_.note_truncated(static_cast<std::uint64_t>(size));
    job_->note_durable(slot_, {{static_cast<std::uint64_t>(size), ~0ull}});
    if (static_cast<std::uint64_t>(size) < old_size) {
        // Each rank publishes the truncation: indexes ignore older bytes beyond it.
        std::lock_guard guard(job_->lock());
        Record record{};
        record.file = slot_;
        record.generation = slot.generation.load();
        record.kind = static_cast<std::uint64_t>(RecordKind::truncate);
        record.begin = static_cast<std::uint64_t>(size);
        std::uint64_t ring_offset = 0;
        if (job_->writer().reserve(0, 1, ring_offset)) {
            job_->writer().begin_write();
            job_->writer().publish(&record, 1, ring_offset, 0);  // without data
            job_->directory().scan_node(false);
        } else {
            code = mpi_error(job_->writer().error() ? job_->writer().error() : EIO);
        }
    }
    return worst_error_class(comm_, code);
}

// Collective: drains what the ranks have written, and on all nodes of the job what others have: any
// handle of the file may have written it. Returns the same error class on every rank.
int AcceleratedFile::drain_all() {
    int code = flush();
    const Store& store = job_->store();
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        job_->drain().finish(rank, store.head(rank).tail.load());
    if (!code && job_->nodes() > 1 && is_first_of_node_) {
        std::lock_guard guard(job_->lock());
        // A node without a rank here gets no record of a truncation, by which it would cut what it
        // repeats. So it must have nothing to repeat.
        const Push push = has_all_nodes_ ? Push::drain : Push::sync;
        if (!job_->resolver().wait_until_pushed(push, store.now(), true)) code = mpi_error(EIO);
    }
    return worst_error_class(comm_, code);
}

// Reserves the space, so that later writes do not fail for lack of it.
int AcceleratedFile::preallocate(MPI_Offset size) {
    if (const int code = check_resize(size)) return code;
    synchronize();
    MPI_Offset old_size = 0;
    int code = worst_error_class(comm_, get_size(&old_size));
    if (!code) code = flush();
    if (code) return code;
    if (rank_ == 0 && size) code = mpi_error(posix_fallocate(descriptor_->number(), 0, size));
    if (is_first_of_node_) note_modified(job_->store(), slot_, descriptor_->number());
    code = worst_error_class(comm_, code);
    if (!code)
        extend_end(job_->store().file(slot_), static_cast<std::uint64_t>(std::max(size, old_size)));
    PMPI_Barrier(comm_);
    return code;
}

// ---- view and pointers

int AcceleratedFile::set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                              const char* representation, MPI_Info info) {
    std::uint64_t shared = 0;
    const bool is_sequential = mode_ & MPI_MODE_SEQUENTIAL;
    // The ranks' displacements may differ, so one that is wrong does not end the call of its rank.
    const bool is_valid =
        is_sequential ? displacement == MPI_DISPLACEMENT_CURRENT : displacement >= 0;
    if (is_sequential) {
        if (rank_ == 0) update_shared_file_pointer(0, false, shared);
        PMPI_Bcast(&shared, 1, MPI_UINT64_T, 0, comm_);
        displacement = offset_of(*view_, displacement_, static_cast<std::int64_t>(shared) * etype_);
    }
    const auto set = [&] {
        return PMPI_File_set_view(mpi_file_, displacement, etype, filetype, representation, info);
    };
#ifdef OMPI_MAJOR_VERSION  // takes a negative one
    const bool is_checked_by_mpi = false;
#else  // its error says more
    const bool is_checked_by_mpi = !is_sequential;
#endif
    int code = is_valid || is_checked_by_mpi ? without_handler(set) : MPI_ERR_ARG;
    if (!code && !is_valid) code = MPI_ERR_ARG;
    const int worst = worst_error_class(comm_, code);
    if (code || worst) return code ? code : MPI_ERR_NOT_SAME;
    const auto view = flatten(filetype);
    const bool foreign =
        std::strcmp(representation, "native") != 0 && std::strcmp(representation, "internal") != 0;
    MPI_Count size = 1;
    PMPI_Type_size_x(etype, &size);
    {
        std::lock_guard guard(job_->lock());
        view_ = view;
        displacement_ = displacement;
        etype_ = std::max<std::int64_t>(1, size);
        position_ = 0;
    }
    if (rank_ == 0) update_shared_file_pointer(0, true, shared);
    // The ranks' file types may differ.
    int bypass = foreign || !view->decoded;
    PMPI_Allreduce(MPI_IN_PLACE, &bypass, 1, MPI_INT, MPI_MAX, comm_);
    return bypass ? enter_bypass() : MPI_SUCCESS;
}

// Drains the file; from then on the MPI library does all its transfers.
int AcceleratedFile::enter_bypass() {
    if (bypass_) return MPI_SUCCESS;
    job_->report_once(
        path_ +
        ": atomic mode across nodes or a foreign data representation: the MPI's own I/O is used");
    synchronize();
    // What is not durable could be written again over what the MPI library writes.
    int code = drain_all();
    if (!code) code = make_durable();
    if (!code && !is_durable(job_->store(), slot_)) code = mpi_error(EBUSY);
    code = worst_error_class(comm_, code);
    if (code) return code;
    job_->store().file(slot_).valid_from = job_->store().file(slot_).durable.load();
    job_->store().file(slot_).shared = 1;
    bypass_ = true;
    return MPI_SUCCESS;
}

int AcceleratedFile::set_atomicity(int on) {
    int range[2] = {on != 0, -(on != 0)};
    PMPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MAX, comm_);
    if (range[0] != -range[1]) return MPI_ERR_NOT_SAME;
    if (on) {
        synchronize();
        leave_direct_route();
        if (!is_on_one_node_)
            if (const int code = enter_bypass()) return code;
        if (const int code = worst_error_class(comm_, open_for_locks())) return code;
    }
    atomic_ = on;
    PMPI_Barrier(comm_);
    return MPI_SUCCESS;
}

// Opens the same file again: locks belong to an open file description.
int AcceleratedFile::open_for_locks() {
    if (lock_fd_ >= 0) return MPI_SUCCESS;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor_->number());
    const int access = fcntl(descriptor_->number(), F_GETFL) & O_ACCMODE;
    lock_fd_ = ::open(path, access | O_CLOEXEC);
    return lock_fd_ < 0 ? mpi_error(errno) : MPI_SUCCESS;
}

int AcceleratedFile::get_atomicity(int* on) {
    *on = atomic_;
    return MPI_SUCCESS;
}

// The end of the file as it is on all nodes, in units of the view. Returns an MPI error class.
int AcceleratedFile::end_of_view(std::int64_t& end) {
    MPI_Offset size = 0;
    if (const int code = get_size(&size)) return code;
    end = (bytes_before(*view_, displacement_, size) + etype_ - 1) / etype_;
    return MPI_SUCCESS;
}

int AcceleratedFile::seek(MPI_Offset offset, int whence) {
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    std::int64_t base = 0;
    if (whence == MPI_SEEK_CUR) base = position_;
    else if (whence == MPI_SEEK_END) {
        if (const int code = end_of_view(base)) return code;
    } else if (whence != MPI_SEEK_SET) return MPI_ERR_ARG;
    if (__builtin_add_overflow(base, offset, &base) || base < 0) return MPI_ERR_ARG;
    position_ = base;
    return MPI_SUCCESS;
}

int AcceleratedFile::seek_shared(MPI_Offset offset, int whence) {
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    if (whence != MPI_SEEK_SET && whence != MPI_SEEK_CUR && whence != MPI_SEEK_END)
        return MPI_ERR_ARG;
    synchronize();
    int code = MPI_SUCCESS;
    if (rank_ == 0) {
        std::int64_t base = 0;
        std::uint64_t before = 0;
        if (whence == MPI_SEEK_END) code = end_of_view(base);
        if (whence == MPI_SEEK_CUR) {
            update_shared_file_pointer(0, false, before);
            base = static_cast<std::int64_t>(before);
        }
        if (!code && (__builtin_add_overflow(base, offset, &base) || base < 0)) code = MPI_ERR_ARG;
        if (!code) update_shared_file_pointer(base, true, before);
    }
    PMPI_Bcast(&code, 1, MPI_INT, 0, comm_);
    return code;
}

int AcceleratedFile::get_position(MPI_Offset* offset) {
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    *offset = position_;
    return MPI_SUCCESS;
}

int AcceleratedFile::get_position_shared(MPI_Offset* offset) {
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    std::uint64_t position = 0;
    const int code = update_shared_file_pointer(0, false, position);
    *offset = static_cast<MPI_Offset>(position);
    return code;
}

int AcceleratedFile::get_info(MPI_Info* info) const {
    const int code = PMPI_File_get_info(mpi_file_, info);
    if (code) return code;
    set_aggregators(*info, aggregator_hints_, nodes_);
    add_info_keys(*info, !(mode_ & MPI_MODE_RDONLY), until_memory_);
    return MPI_SUCCESS;
}

int AcceleratedFile::get_byte_offset(MPI_Offset offset, MPI_Offset* displacement) const {
    std::int64_t logical = 0, found = 0;
    if (offset < 0 || __builtin_mul_overflow(offset, etype_, &logical) ||
        !find_offset(*view_, displacement_, logical, found))
        return MPI_ERR_ARG;
    *displacement = found;
    return MPI_SUCCESS;
}

}  // namespace assay::storage
