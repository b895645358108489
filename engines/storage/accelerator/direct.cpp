// The direct route: writes that go into the file without the store. On a local file system the page
// cache is in the node's memory too, and a write through the store would copy the data twice before
// close can return. So if close waits for the file system anyway, and all ranks of the job are on
// one node, a write is one call for each contiguous piece of the file, as in the MPI library.
//
// All handles of a file use one route, chosen by the first that opens it for writing, so the order
// of writes is that of the kernel. A file changes from the direct route to the store, never back,
// when a write has small pieces, which the drain merges, or in atomic mode. Data from before the
// change are in the file already, and the drain writes later data over them.
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/file.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_systems.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

// Bytes. Shorter pieces of a write are cheaper to copy into the store than to write by one call
// each.
constexpr std::int64_t min_piece = 4096;

// Bytes of short pieces of memory that are copied together for one call: they are still in the
// core's cache when the kernel reads them.
constexpr std::int64_t packed_bytes = 256 << 10;

// Bytes and pieces of memory that one call writes from where they are. They are listed in parts,
// because a list of single bytes takes 32 times their memory.
constexpr std::int64_t gathered_bytes = 4 << 20, bytes_at_once = 64 << 10;
constexpr std::size_t max_pieces = 1024;  // Linux's UIO_MAXIOV

// Bytes. Where pieces of memory are shorter on average, copying them together is cheaper.
constexpr std::int64_t min_gathered = 4096;

// Each time this many bytes are written, the kernel is asked to start writing them to the medium,
// so that close, which waits for that, waits less.
constexpr std::uint64_t writeback_bytes = 8 << 20;

// The data of a write in the program's memory.
class Source {
public:
    Source(const FlatType& memory, const char* buffer) : memory_(memory), buffer_(buffer) {}

    // Writes at most `bytes` of the data from byte `from` on to the file at `offset`, as pwrite.
    ssize_t write(int fd, std::int64_t from, std::int64_t bytes, std::int64_t offset) {
        if (memory_.contiguous)
            return pwrite(fd, buffer_ + from, static_cast<std::size_t>(bytes), offset);
        if (!has_short_pieces_) {
            const std::size_t pieces = list_pieces(from, std::min(bytes, gathered_bytes));
            if (pieces) return pwritev(fd, pieces_.data(), static_cast<int>(pieces), offset);
            has_short_pieces_ = true;
        }
        bytes = std::min(bytes, packed_bytes);
        if (!packed_) packed_ = std::make_unique_for_overwrite<char[]>(packed_bytes);
        pack(memory_, buffer_, from, bytes, packed_.get());
        return pwrite(fd, packed_.get(), static_cast<std::size_t>(bytes), offset);
    }

private:
    // Lists pieces of memory in `pieces_`, the first with byte `from`, of at most `bytes` in all.
    // Returns their number; 0 if they are short.
    std::size_t list_pieces(std::int64_t from, std::int64_t bytes) {
        std::size_t listed = 0;
        std::int64_t listed_bytes = 0;
        bool is_full = false;
        for (std::int64_t done = 0; done < bytes && !is_full; done += bytes_at_once) {
            BlockList blocks;
            append_blocks(memory_, 0, from + done, std::min(bytes - done, bytes_at_once), blocks);
            for (const auto& block : blocks.blocks)
                for (std::int64_t k = 0; k < block.count && !is_full; ++k) {
                    is_full = !add_piece(block.begin + k * block.stride, block.length, listed);
                    if (!is_full) listed_bytes += block.length;
                }
            // The first piece has begun before these bytes, and the last may go on after them.
            if (static_cast<std::int64_t>(listed) > 2 + listed_bytes / min_gathered) return 0;
        }
        return listed;
    }

    // Returns false if there are too many pieces.
    bool add_piece(std::int64_t offset, std::int64_t length, std::size_t& listed) {
        char* const begin = const_cast<char*>(buffer_) + offset;  // only read
        if (listed) {
            iovec& last = pieces_[listed - 1];
            if (static_cast<char*>(last.iov_base) + last.iov_len == begin) {
                last.iov_len += static_cast<std::size_t>(length);
                return true;
            }
        }
        if (listed == max_pieces) return false;
        pieces_[listed++] = {begin, static_cast<std::size_t>(length)};
        return true;
    }

    const FlatType& memory_;
    const char* buffer_;
    std::array<iovec, max_pieces> pieces_;
    bool has_short_pieces_ = false;
    std::unique_ptr<char[]> packed_;
};

}  // namespace

// Whether writes of the file may leave out the store. A store on persistent memory survives a power
// failure, which the page cache does not; the data that later jobs read from a kept store must be
// in the store; and data of the store that are not durable could be written again over later ones.
bool AcceleratedFile::may_write_directly() const {
    return job_->settings().direct && job_->settings().keep.empty() && !until_memory_ &&
           job_->nodes() == 1 && !job_->store().persistent() && is_local(descriptor_->number()) &&
           is_durable(job_->store(), slot_);
}

// Chooses the route when the file is opened. No rank writes before all ranks have done so, because
// synchronize_after_open() follows.
void AcceleratedFile::choose_route() {
    if (mode_ & MPI_MODE_RDONLY) return;
    join_route();
    // What close leaves to the background drain must be in the store.
    if (until_memory_) leave_direct_route();
}

// Takes the route that the file has; the first that opens it decides.
void AcceleratedFile::join_route() {
    Store& store = job_->store();
    auto& slot = store.file(slot_);
    const TableLock lock(store);
    if (slot.route.load() != Route::undecided) {
        may_lose_ = slot.route.load() != Route::store;
        return;
    }
    may_lose_ = may_write_directly();
    if (may_lose_.load()) {
        // From now on readers read the file's data from the file, not from the rings.
        slot.valid_from = slot.durable.load();
        slot.route = Route::direct;
    } else {
        slot.route = Route::store;
    }
}

void AcceleratedFile::leave_direct_route() {
    Store& store = job_->store();
    auto& slot = store.file(slot_);
    if (slot.route.load(std::memory_order_acquire) != Route::direct) return;
    const TableLock lock(store);
    if (slot.route.load() != Route::direct) return;
    slot.route.store(Route::left_direct, std::memory_order_release);
}

// Appends the blocks of a part of the view's data in the file.
void AcceleratedFile::list_blocks(std::int64_t logical, std::int64_t bytes, BlockList& blocks) {
    const std::lock_guard guard(job_->lock());
    append_blocks(*view_, displacement_, logical, bytes, blocks);
}

// Whether a write takes the direct route; then `blocks` has its blocks in the file. They are listed
// in parts, so that a write with many small pieces leaves the route before all are listed.
bool AcceleratedFile::is_direct(const Transfer& transfer, BlockList& blocks) {
    if (job_->store().file(slot_).route.load(std::memory_order_acquire) != Route::direct ||
        !transfer.memory->decoded)
        return false;
    const auto is_large = [](const Blocks& block) { return block.length >= min_piece; };
    std::size_t complete = 0;  // blocks that the next part does not continue
    for (std::int64_t done = 0; done < transfer.bytes; done += max_part) {
        list_blocks(transfer.logical + done, std::min(transfer.bytes - done, max_part), blocks);
        const auto& listed = blocks.blocks;
        const bool last = done + max_part >= transfer.bytes;
        if (last && listed.size() == 1 && listed.front().count == 1) return true;
        const std::size_t end = last || listed.empty() ? listed.size() : listed.size() - 1;
        if (!std::all_of(listed.begin() + static_cast<std::ptrdiff_t>(complete),
                         listed.begin() + static_cast<std::ptrdiff_t>(end), is_large)) {
            leave_direct_route();
            return false;
        }
        complete = end;
    }
    return true;
}

// Writes the data into the blocks of the file. Data that were written before an error stay in the
// file, as with the MPI library.
int AcceleratedFile::write_directly(const Transfer& transfer, const BlockList& blocks,
                                    const char* buffer) {
    Source source(*transfer.memory, buffer);
    std::int64_t done = 0;
    for (const auto& block : blocks.blocks)
        for (std::int64_t k = 0; k < block.count; ++k) {
            std::int64_t offset = block.begin + k * block.stride;
            const auto begin = static_cast<std::uint64_t>(offset);
            for (const std::int64_t end = offset + block.length; offset < end;) {
                const ssize_t written =
                    source.write(descriptor_->number(), done, end - offset, offset);
                if (written < 0 && errno == EINTR) continue;
                if (written <= 0) {
                    const int error = written ? errno : ENOSPC;
                    ledger_.note_written(begin, static_cast<std::uint64_t>(offset));
                    return mpi_error(error);
                }
                done += written;
                offset += written;
            }
            ledger_.note_written(begin, static_cast<std::uint64_t>(offset));
            extend_end(job_->store().file(slot_), static_cast<std::uint64_t>(offset));
        }
    const auto length = static_cast<std::uint64_t>(transfer.bytes);
    const std::uint64_t before = direct_bytes_.fetch_add(length, std::memory_order_relaxed);
    if (before / writeback_bytes != (before + length) / writeback_bytes)
        sync_file_range(descriptor_->number(), 0, 0, SYNC_FILE_RANGE_WRITE);
    return MPI_SUCCESS;
}

}  // namespace assay::storage
