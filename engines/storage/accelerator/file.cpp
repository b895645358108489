// Transfers of an accelerated file: the position at which a transfer begins, writes into the store,
// and reads from the store, from other nodes and from the file system.
#include "storage/accelerator/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "storage/accelerator/comm_epoch.hpp"
#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {

// ---- position of a transfer

int AcceleratedFile::check_transfer(TransferStart start, MPI_Count count, bool writing) const {
    if (count < 0) return MPI_ERR_COUNT;
    if (start.kind == PositionKind::explicit_offset && start.offset < 0) return MPI_ERR_ARG;
    if (writing && mode_ & MPI_MODE_RDONLY) return MPI_ERR_READ_ONLY;
    if (!writing && mode_ & MPI_MODE_WRONLY) return MPI_ERR_ACCESS;
    if (mode_ & MPI_MODE_SEQUENTIAL &&
        (start.kind == PositionKind::explicit_offset || start.kind == PositionKind::individual))
        return MPI_ERR_UNSUPPORTED_OPERATION;
    return MPI_SUCCESS;
}

// Checks the transfer, finds its bytes and advances the file pointer. Returns an MPI error class.
int AcceleratedFile::begin_transfer(TransferStart start, MPI_Count count, MPI_Datatype type,
                                    bool writing, Transfer& transfer) {
    int code = check_transfer(start, count, writing);
    if (!code && type == MPI_DATATYPE_NULL) code = MPI_ERR_TYPE;
    if (!code) {
        transfer.memory = flatten(type);
        if (__builtin_mul_overflow(transfer.memory->size, count, &transfer.bytes))
            code = MPI_ERR_ARG;
    }
    if (!code) return advance_position(start, transfer.bytes, transfer.logical);
    if (start.kind == PositionKind::ordered)
        advance_position(start, 0, transfer.logical);  // collective: the other ranks call it too
    return code;
}

// Sets `logical`, the first byte of the transfer in the data of the view, and advances the file
// pointer. Returns an MPI error class: MPI_ERR_ARG if no file can have the bytes.
int AcceleratedFile::advance_position(TransferStart start, std::int64_t bytes,
                                      std::int64_t& logical) {
    const std::int64_t etypes = bytes / etype_ + (bytes % etype_ != 0);
    std::int64_t first = 0;
    switch (start.kind) {
        case PositionKind::explicit_offset: first = start.offset; break;
        case PositionKind::individual: first = position_.fetch_add(etypes); break;
        case PositionKind::shared: {
            std::uint64_t base = 0;
            if (const int code = update_shared_file_pointer(etypes, false, base)) return code;
            first = static_cast<std::int64_t>(base);
            break;
        }
        case PositionKind::ordered: {
            std::int64_t local_etypes = etypes, before = 0, all = 0;
            PMPI_Exscan(&local_etypes, &before, 1, MPI_INT64_T, MPI_SUM, comm_);
            if (rank_ == 0) before = 0;
            PMPI_Allreduce(&local_etypes, &all, 1, MPI_INT64_T, MPI_SUM, comm_);
            std::uint64_t base = 0;
            if (rank_ == 0) {  // its node holds the pointer
                update_shared_file_pointer(all, false, base);
                std::int64_t end = 0;
                std::uint64_t ignored = 0;
                if (__builtin_add_overflow(base, all, &end)) {
                    update_shared_file_pointer(-all, false, ignored);
                    base = ~0ull;  // an error of all ranks
                }
            }
            PMPI_Bcast(&base, 1, MPI_UINT64_T, 0, comm_);
            first = static_cast<std::int64_t>(base);
            if (first >= 0) first += before;
            break;
        }
    }
    if (!__builtin_mul_overflow(first, etype_, &logical) && logical >= 0 && fits(logical, bytes))
        return MPI_SUCCESS;
    // The pointer stays where it was, but that of ordered transfers moves if other ranks' bytes
    // fit.
    std::uint64_t ignored = 0;
    if (start.kind == PositionKind::individual) position_ -= etypes;
    if (start.kind == PositionKind::shared) update_shared_file_pointer(-etypes, false, ignored);
    return MPI_ERR_ARG;
}

bool AcceleratedFile::fits(std::int64_t logical, std::int64_t bytes) {
    const std::lock_guard guard(job_->lock());
    return fits_in_file(*view_, displacement_, logical, bytes);
}

// Adds `amount` to the shared file pointer, or sets it. `before`: its old value. In etypes.
int AcceleratedFile::update_shared_file_pointer(std::int64_t amount, bool set,
                                                std::uint64_t& before) {
    if (job_->node_of(world_ranks_[0]) != job_->node())
        return job_->remote()->update_shared_file_pointer(world_ranks_[0], shared_pointer_slot_,
                                                          amount, set, before)
                   ? MPI_SUCCESS
                   : MPI_ERR_IO;
    auto& shared = job_->store().superblock().shared_pointers[shared_pointer_slot_];
    before = set ? shared.exchange(static_cast<std::uint64_t>(amount))
                 : shared.fetch_add(static_cast<std::uint64_t>(amount));
    return MPI_SUCCESS;
}

// A file lock on the bytes of a transfer in atomic mode, whichever way it goes: through the store
// it may go in several parts, and the MPI library has opened the file on MPI_COMM_SELF, so its own
// locks do not exclude other ranks.
//
// These are locks of the open file description, because the MPI may close files of its own, which
// would drop locks of the process. They are shifted by 2^62 bytes, because some MPIs lock the bytes
// themselves and would wait for this lock. All bytes from 2^62 on share the last one's lock.
class AcceleratedFile::RangeLock {
public:
    RangeLock(const AcceleratedFile& file, std::int64_t logical, std::int64_t bytes, short kind)
        : fd_(file.atomic_ && bytes ? file.lock_fd_ : -1) {
        if (fd_ < 0) return;
        range_.l_type = kind;
        range_.l_whence = SEEK_SET;
        const std::int64_t first =
            std::min(offset_of(*file.view_, file.displacement_, logical), shift - 1);
        const std::int64_t last =
            std::min(offset_of(*file.view_, file.displacement_, logical + bytes - 1), shift - 1);
        range_.l_start = shift + first;
        range_.l_len = last + 1 - first;
        while (fcntl(fd_, F_OFD_SETLKW, &range_) && !error_)
            if (errno != EINTR) error_ = errno;
    }
    // The MPI error class of locking; without the lock the transfer would not be atomic.
    int code() const { return mpi_error(error_); }
    ~RangeLock() {
        if (fd_ < 0) return;
        range_.l_type = F_UNLCK;
        fcntl(fd_, F_OFD_SETLK, &range_);
    }
    RangeLock(const RangeLock&) = delete;
    RangeLock& operator=(const RangeLock&) = delete;

private:
    static constexpr std::int64_t shift = std::int64_t{1} << 62;
    int fd_, error_ = 0;
    struct flock range_{};
};

// ---- writing

int AcceleratedFile::write(TransferStart start, const void* buffer, MPI_Count count,
                           MPI_Datatype type, MPI_Count* bytes_moved) {
    *bytes_moved = 0;
    synchronize_before_transfer(start);
    const int code = write_data(start, buffer, count, type, bytes_moved);
    synchronize_after_transfer(start.collective);
    return code;
}

int AcceleratedFile::write_data(TransferStart start, const void* buffer, MPI_Count count,
                                MPI_Datatype type, MPI_Count* bytes_moved) {
    Transfer transfer;
    int code = begin_transfer(start, count, type, true, transfer);
    if (code) return code;
    const auto& [memory, bytes, logical] = transfer;
    if (bypass_) {
        const RangeLock lock(*this, logical, bytes, F_WRLCK);
        if (lock.code()) return lock.code();
        MPI_Status status;
        const MPI_Offset offset = logical / etype_;
        code = without_handler([&] {
#if MPI_VERSION >= 4
            return PMPI_File_write_at_c(mpi_file_, offset, buffer, count, type, &status);
#else
            return PMPI_File_write_at(mpi_file_, offset, buffer, static_cast<int>(count), type,
                                      &status);
#endif
        });
    } else if (BlockList blocks; is_direct(transfer, blocks)) {
        code = write_directly(transfer, blocks, static_cast<const char*>(buffer));
    } else {
        std::lock_guard guard(job_->lock());
        const RangeLock lock(*this, logical, bytes, F_WRLCK);
        if (lock.code()) return lock.code();
        // This write needs a later sequence than all writes that this process may know of.
        if (spans_nodes() && !job_->directory().refresh_remote()) code = MPI_ERR_IO;
        else if (!memory->decoded) code = MPI_ERR_UNSUPPORTED_OPERATION;
        else code = write_to_store(logical, static_cast<const char*>(buffer), *memory, bytes);
    }
    if (!code) *bytes_moved = bytes;
    return code;
}

int AcceleratedFile::write_to_store(std::int64_t logical, const char* buffer,
                                    const FlatType& memory, std::int64_t bytes) {
    auto& writer = job_->writer();
    const auto& slot = job_->store().file(slot_);
    std::vector<Record> records;
    for (std::int64_t done = 0; done < bytes;) {
        const auto max_bytes = static_cast<std::int64_t>(writer.max_bytes());
        std::int64_t part = std::min(bytes - done, max_bytes);
        if (!view_->contiguous) part = std::min(part, max_part);
        BlockList blocks;
        for (;; part = std::max<std::int64_t>(1, part / 2)) {
            blocks.blocks.clear();
            append_blocks(*view_, displacement_, logical + done, part, blocks);
            if (blocks.blocks.size() <= writer.max_records()) break;
        }
        std::uint64_t from = 0;
        char* to = writer.reserve(static_cast<std::size_t>(part), blocks.blocks.size(), from);
        // The ring may have become smaller.
        if (!to && part > static_cast<std::int64_t>(writer.max_bytes())) continue;
        if (!to) return mpi_error(writer.error() ? writer.error() : EIO);
        writer.begin_write();
        if (memory.contiguous) {
            std::memcpy(to, buffer + done, static_cast<std::size_t>(part));
        } else {
            pack(memory, buffer, done, part, to);
        }
        records.clear();
        std::uint64_t ring_offset = 0, end = 0;
        for (const auto& block : blocks.blocks) {
            Record record{};
            record.file = slot_;
            record.generation = slot.generation.load(std::memory_order_relaxed);
            record.kind = static_cast<std::uint64_t>(RecordKind::data);
            record.begin = static_cast<std::uint64_t>(block.begin);
            record.length = static_cast<std::uint64_t>(block.length);
            record.stride = static_cast<std::uint64_t>(block.stride);
            record.count = static_cast<std::uint64_t>(block.count);
            record.ring_offset = ring_offset;
            ring_offset += record.length * record.count;
            end = std::max(end, record.begin + (record.count - 1) * record.stride + record.length);
            records.push_back(record);
            if (may_lose_.load(std::memory_order_relaxed)) note_stored(record);
        }
        writer.publish(records.data(), records.size(), from, static_cast<std::size_t>(part));
        extend_end(job_->store().file(slot_), end);
        done += part;
    }
    return MPI_SUCCESS;
}

// Records in the ledger that the record's bytes were written through the store, which may have been
// bytes that a failed fsync has lost.
void AcceleratedFile::note_stored(const Record& record) {
    for (std::uint64_t k = 0; k < record.count; ++k) {
        const std::uint64_t begin = record.begin + k * record.stride;
        ledger_.note_stored(begin, begin + record.length);
    }
}

// ---- reading

// Whether other nodes may write the file too, through this handle or another one.
bool AcceleratedFile::spans_nodes() const {
    return !is_on_one_node_ || (job_->nodes() > 1 && job_->store().file(slot_).shared.load());
}

// The file's size. The file system is asked only if the known size is below `at_least`; ~0: the
// size as it is now, also if another handle or node has made the file shorter.
std::uint64_t AcceleratedFile::current_size(std::uint64_t at_least) {
    if (at_least == ~0ull && job_->nodes() > 1) lower_end(job_->store(), slot_);
    const std::uint64_t remote_end = spans_nodes() ? job_->directory().remote_end(slot_) : 0;
    const std::uint64_t size =
        std::max(job_->store().file(slot_).end.load(std::memory_order_relaxed), remote_end);
    if (size >= at_least) return size;
    // Without communication nobody can tell that another handle has changed it.
    const std::uint64_t epoch = comm_epoch();
    if (file_size_epoch_ != epoch || file_size_ < at_least) {
        const off_t end = lseek(descriptor_->number(), 0, SEEK_END);
        file_size_ = end >= 0 ? static_cast<std::uint64_t>(end) : 0;
        file_size_epoch_ = epoch;
    }
    return std::max(size, file_size_);
}

int AcceleratedFile::read(TransferStart start, void* buffer, MPI_Count count, MPI_Datatype type,
                          MPI_Count* bytes_moved) {
    *bytes_moved = 0;
    synchronize_before_transfer(start);
    synchronize_after_transfer(start.collective);
    Transfer transfer;
    if (const int code = begin_transfer(start, count, type, false, transfer)) return code;
    const auto& [memory, bytes, logical] = transfer;
    if (!memory->decoded && !bypass_) return MPI_ERR_UNSUPPORTED_OPERATION;
    if (bypass_) {
        const RangeLock lock(*this, logical, bytes, F_RDLCK);
        if (lock.code()) return lock.code();
        MPI_Status status;
        const MPI_Offset offset = logical / etype_;
        const int code = without_handler([&] {
#if MPI_VERSION >= 4
            return PMPI_File_read_at_c(mpi_file_, offset, buffer, count, type, &status);
#else
            return PMPI_File_read_at(mpi_file_, offset, buffer, static_cast<int>(count), type,
                                     &status);
#endif
        });
        if (!code) PMPI_Get_elements_x(&status, MPI_BYTE, bytes_moved);
        return code;
    }
    std::lock_guard guard(job_->lock());
    const RangeLock lock(*this, logical, bytes, F_RDLCK);
    if (lock.code()) return lock.code();
    if (!refresh_directory()) return MPI_ERR_IO;
    const int code = read_blocks(logical, static_cast<char*>(buffer), *memory, bytes, *bytes_moved);
    if (start.kind == PositionKind::individual && *bytes_moved < bytes)
        position_ -= bytes / etype_ - *bytes_moved / etype_;
    return code;
}

int AcceleratedFile::read_blocks(std::int64_t logical, char* buffer, const FlatType& memory,
                                 std::int64_t bytes, MPI_Count& bytes_read) {
    const bool contiguous = memory.contiguous && view_->contiguous;
    const std::int64_t step = contiguous ? bytes : std::min(bytes, max_part);
    std::unique_ptr<char[]> packed;
    if (!memory.contiguous)
        packed = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(step));
    for (std::int64_t done = 0; done < bytes && bytes_read == done; done += step) {
        MPI_Count part_read = 0;
        char* to = memory.contiguous ? buffer + done : packed.get();
        if (const int code =
                read_part(logical + done, to, std::min(bytes - done, step), part_read)) {
            bytes_read = 0;
            return code;
        }
        if (!memory.contiguous) unpack(memory, buffer, done, part_read, packed.get());
        bytes_read += part_read;
    }
    return MPI_SUCCESS;
}

// Reads up to the end of the file.
int AcceleratedFile::read_part(std::int64_t logical, char* to, std::int64_t bytes,
                               MPI_Count& bytes_read) {
    BlockList blocks;
    append_blocks(*view_, displacement_, logical, bytes, blocks);
    std::uint64_t furthest = 0;
    for (const auto& block : blocks.blocks)
        furthest =
            std::max(furthest, static_cast<std::uint64_t>(
                                   block.begin + (block.count - 1) * block.stride + block.length));
    const std::uint64_t end = current_size(furthest);
    std::vector<RemoteRead> remote_reads;
    bool is_before_end = true;
    for (const auto& block : blocks.blocks)
        for (std::int64_t k = 0; k < block.count && is_before_end; ++k) {
            const auto begin = static_cast<std::uint64_t>(block.begin + k * block.stride);
            const auto upto = std::min(end, begin + static_cast<std::uint64_t>(block.length));
            if (begin >= upto) {
                is_before_end = false;
                break;
            }
            if (const int code = read_range(begin, upto, to + bytes_read, remote_reads))
                return code;
            bytes_read += static_cast<std::int64_t>(upto - begin);
            is_before_end = upto == begin + static_cast<std::uint64_t>(block.length);
        }
    return fetch_remote(remote_reads);
}

// Adds the writes of other ranks to the directory, as far as the visibility setting requires it
// now. Returns false if a node does not answer.
bool AcceleratedFile::refresh_directory() {
    job_->directory().scan_node(job_->settings().visibility == Visibility::immediate || atomic_);
    return !spans_nodes() || job_->directory().refresh_remote();
}

// Reads bytes from the store and the file system, and appends those on other nodes to
// `remote_reads`. Returns an MPI error class.
int AcceleratedFile::read_range(std::uint64_t begin, std::uint64_t end, char* to,
                                std::vector<RemoteRead>& remote_reads) {
    Index& index = job_->directory().all_writes(slot_);
    const Store& store = job_->store();
    // Older data are read from the file system.
    const std::uint64_t oldest =
        std::max(store.file(slot_).foreign_before.load(std::memory_order_relaxed),
                 spans_nodes() ? 0 : job_->directory().evicted_before());
    // Those of another node are there when they are durable.
    const auto is_in_file = [&](const Lookup& found) {
        if (found.sequence >= oldest) return false;
        return !(found.rank & remote_rank_bit) ||
               job_->directory().is_durable(static_cast<int>(found.rank & ~remote_rank_bit),
                                            found.sequence);
    };
    int code = MPI_SUCCESS;
    while (begin < end && !code) {
        const Lookup lookup = index.find(begin, end);
        const std::uint64_t bytes = lookup.end - begin;
        if (!lookup.has_data || lookup.rank == file_system_rank || is_in_file(lookup)) {
            code = read_file_system(begin, lookup.end, to);
        } else if (lookup.rank & remote_rank_bit) {
            remote_reads.push_back({static_cast<int>(lookup.rank & ~remote_rank_bit),
                                    lookup.ring_offset, bytes, to, begin});
        } else {
            const bool was_in_ring = job_->in_ring(lookup.rank, lookup.ring_offset);
            if (was_in_ring) std::memcpy(to, store.data(lookup.rank, lookup.ring_offset), bytes);
            std::atomic_thread_fence(std::memory_order_seq_cst);
            // If the data were evicted during the copy, the file system has them.
            if (!was_in_ring || !job_->in_ring(lookup.rank, lookup.ring_offset))
                code = read_file_system(begin, lookup.end, to);
        }
        to += bytes;
        begin = lookup.end;
    }
    return code;
}

// Reads bytes from the file system. Bytes beyond the end of the file become zero: they are a gap
// before data that are not drained yet. Returns an MPI error class.
int AcceleratedFile::read_file_system(std::uint64_t begin, std::uint64_t end, char* to) const {
    while (begin < end) {
        const ssize_t bytes_read =
            pread(descriptor_->number(), to, end - begin, static_cast<off_t>(begin));
        if (bytes_read < 0 && errno == EINTR) continue;
        if (bytes_read < 0) return mpi_error(errno);
        if (bytes_read == 0) break;
        to += bytes_read;
        begin += static_cast<std::uint64_t>(bytes_read);
    }
    std::memset(to, 0, end - begin);
    return MPI_SUCCESS;
}

// Fetches the data that other nodes hold. Returns an MPI error class.
int AcceleratedFile::fetch_remote(std::vector<RemoteRead>& remote_reads) {
    if (remote_reads.empty()) return MPI_SUCCESS;
    job_->remote()->fetch(remote_reads);
    int code = MPI_SUCCESS;
    for (const auto& request : remote_reads) {
        if (request.state == RemoteRead::failed) return MPI_ERR_IO;
        if (request.state == RemoteRead::evicted && !code)
            code = read_file_system(request.file_offset, request.file_offset + request.bytes,
                                    request.buffer);
    }
    return code;
}

// A collective transfer begins with a barrier, so that all earlier writes of any rank are older
// than its writes and visible to its reads. MPI does not guarantee that, but in the MPI libraries
// collective transfers begin with an exchange, and other libraries rely on it.
void AcceleratedFile::synchronize_before_transfer(TransferStart start) {
    if (!start.collective || job_->settings().visibility != Visibility::immediate) return;
    if (start.kind != PositionKind::ordered)
        PMPI_Barrier(comm_);  // ordered transfers synchronize in advance_position()
    advance_comm_epoch();
}

// With the visibility `collective`, a collective transfer makes all earlier writes visible.
void AcceleratedFile::synchronize_after_transfer(bool collective) {
    if (collective && !bypass_ && job_->settings().visibility == Visibility::collective)
        synchronize();
}

}  // namespace assay::storage
