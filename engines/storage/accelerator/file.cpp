#include "storage/accelerator/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "storage/accelerator/heard.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {

// ---- what every transfer begins with

int File::refuse(At at, MPI_Count count, bool writing) const {
    if (count < 0) return MPI_ERR_COUNT;
    if (at.pointer == Pointer::given && at.offset < 0) return MPI_ERR_ARG;
    if (writing && mode_ & MPI_MODE_RDONLY) return MPI_ERR_READ_ONLY;
    if (!writing && mode_ & MPI_MODE_WRONLY) return MPI_ERR_ACCESS;
    if (mode_ & MPI_MODE_SEQUENTIAL && (at.pointer == Pointer::given || at.pointer == Pointer::own))
        return MPI_ERR_UNSUPPORTED_OPERATION;
    return MPI_SUCCESS;
}

// The byte of the view's data at which the transfer begins; moves the pointer past it.
int File::place(At at, std::int64_t bytes, std::int64_t& logical) {
    const std::int64_t etypes = (bytes + etype_ - 1) / etype_;
    std::int64_t first = 0;
    switch (at.pointer) {
        case Pointer::given: first = at.offset; break;
        case Pointer::own: first = position_.fetch_add(etypes); break;
        case Pointer::shared: {
            std::uint64_t base = 0;
            if (const int code = pointer(etypes, false, base)) return code;
            first = static_cast<std::int64_t>(base);
            break;
        }
        case Pointer::ordered: {
            std::int64_t mine = etypes, before = 0, all = 0;
            PMPI_Exscan(&mine, &before, 1, MPI_INT64_T, MPI_SUM, comm_);
            if (rank_ == 0) before = 0;
            PMPI_Allreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, comm_);
            std::uint64_t base = 0;
            if (rank_ == 0) pointer(all, false, base);  // of its own node
            PMPI_Bcast(&base, 1, MPI_UINT64_T, 0, comm_);
            first = static_cast<std::int64_t>(base) + before;
            break;
        }
    }
    logical = first * etype_;
    return MPI_SUCCESS;
}

int File::pointer(std::int64_t amount, bool set, std::uint64_t& before) {
    if (job_->node_of(pointer_home_) != job_->node())
        return job_->remote()->pointer(pointer_home_, pointer_slot_, amount, set, before)
                   ? MPI_SUCCESS
                   : MPI_ERR_IO;
    auto& word = job_->store().super().pointers[pointer_slot_];
    before = set ? word.exchange(static_cast<std::uint64_t>(amount))
                 : word.fetch_add(static_cast<std::uint64_t>(amount));
    return MPI_SUCCESS;
}

// In an atomic mode that the MPI does: it does it for this rank alone, so the file system's own
// locks keep ranks apart. (Locks of an open file, not of the process: the MPI may close files of
// its own. And far beyond the bytes that they stand for: the MPI locks those itself at times, and
// would wait for us.)
class File::Alone {
public:
    Alone(const File& file, std::int64_t logical, std::int64_t bytes, short kind)
        : fd_(file.atomic_ && bytes ? file.locks_ : -1) {
        if (fd_ < 0) return;
        range_.l_type = kind;
        range_.l_whence = SEEK_SET;
        const std::int64_t first = offset_of(*file.view_, file.displacement_, logical);
        range_.l_start = (std::int64_t{1} << 62) + first;
        range_.l_len = offset_of(*file.view_, file.displacement_, logical + bytes - 1) + 1 - first;
        while (fcntl(fd_, F_OFD_SETLKW, &range_) && errno == EINTR) {
        }
    }
    ~Alone() {
        if (fd_ < 0) return;
        range_.l_type = F_UNLCK;
        fcntl(fd_, F_OFD_SETLK, &range_);
    }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;

private:
    int fd_;
    struct flock range_{};
};

// ---- writing

int File::write(At at, const void* buffer, MPI_Count count, MPI_Datatype type, MPI_Count* moved) {
    *moved = 0;
    meet(at);
    const int code = write_own(at, buffer, count, type, moved);
    visible(at.collective);
    return code;
}

int File::write_own(At at, const void* buffer, MPI_Count count, MPI_Datatype type,
                    MPI_Count* moved) {
    std::int64_t logical = 0;
    if (const int code = refuse(at, count, true)) {
        if (at.pointer == Pointer::ordered) place(at, 0, logical);  // the others count on it
        return code;
    }
    const auto memory = flatten(type);
    const std::int64_t bytes = memory->size * count;
    int code = place(at, bytes, logical);
    if (code) return code;
    if (bypass_) {
        const Alone alone(*this, logical, bytes, F_WRLCK);
        MPI_Status status;
#if MPI_VERSION >= 4
        code = PMPI_File_write_at_c(anchor_, logical / etype_, buffer, count, type, &status);
#else
        code = PMPI_File_write_at(anchor_, logical / etype_, buffer, static_cast<int>(count), type,
                                  &status);
#endif
    } else {
        std::lock_guard hold(job_->lock());
        // What this process has heard of is older than what it writes now.
        if (!one_node_ && !job_->knowledge().look_elsewhere()) code = MPI_ERR_IO;
        else if (!memory->known) code = MPI_ERR_UNSUPPORTED_OPERATION;
        else code = store_bytes(logical, static_cast<const char*>(buffer), *memory, bytes);
    }
    if (!code) *moved = bytes;
    return code;
}

int File::store_bytes(std::int64_t logical, const char* buffer, const Flat& memory,
                      std::int64_t bytes) {
    auto& writer = job_->writer();
    const auto& slot = job_->store().file(slot_);
    std::vector<Record> records;
    for (std::int64_t done = 0; done < bytes;) {
        std::int64_t part =
            std::min<std::int64_t>(bytes - done, static_cast<std::int64_t>(writer.most_bytes()));
        BlockList blocks;
        for (;; part = std::max<std::int64_t>(1, part / 2)) {
            blocks.blocks.clear();
            walk(*view_, displacement_, logical + done, part, blocks);
            if (blocks.blocks.size() <= writer.most_records()) break;
        }
        std::uint64_t from = 0;
        char* to = writer.reserve(static_cast<std::size_t>(part), blocks.blocks.size(), from);
        if (!to)
            return writer.error() == ENOSPC || writer.error() == EDQUOT ? MPI_ERR_NO_SPACE
                                                                        : MPI_ERR_IO;
        writer.begin();
        if (memory.contiguous) {
            std::memcpy(to, buffer + done, static_cast<std::size_t>(part));
        } else {
            BlockList pieces;
            walk(memory, 0, done, part, pieces);
            for (const auto& piece : pieces.blocks)
                for (std::int64_t k = 0; k < piece.count; ++k, to += piece.length)
                    std::memcpy(to, buffer + piece.begin + k * piece.stride,
                                static_cast<std::size_t>(piece.length));
        }
        records.clear();
        std::uint64_t place = 0, end = 0;
        for (const auto& block : blocks.blocks) {
            Record record{};
            record.file = slot_;
            record.generation = slot.generation.load(std::memory_order_relaxed);
            record.kind = static_cast<std::uint64_t>(Kind::data);
            record.begin = static_cast<std::uint64_t>(block.begin);
            record.length = static_cast<std::uint64_t>(block.length);
            record.stride = static_cast<std::uint64_t>(block.stride);
            record.count = static_cast<std::uint64_t>(block.count);
            record.place = place;
            place += record.length * record.count;
            end = std::max(end, record.begin + (record.count - 1) * record.stride + record.length);
            records.push_back(record);
        }
        writer.publish(records.data(), records.size(), from, static_cast<std::size_t>(part));
        grow(end);
        done += part;
    }
    return MPI_SUCCESS;
}

void File::grow(std::uint64_t end) {
    auto& of = job_->store().file(slot_).end;
    std::uint64_t known = of.load(std::memory_order_relaxed);
    while (known < end && !of.compare_exchange_weak(known, end)) {
    }
}

// ---- reading

// The file's size, looked up only as far as it matters: whether it is `at_least` so much.
std::uint64_t File::size_now(std::uint64_t at_least) {
    const std::uint64_t elsewhere_end = one_node_ ? 0 : job_->knowledge().end_elsewhere(slot_);
    const std::uint64_t size = std::max(
        {job_->store().file(slot_).end.load(std::memory_order_relaxed), elsewhere_end, file_size_});
    if (size >= at_least) return size;
    if (const off_t end = fd_ >= 0 ? lseek(fd_, 0, SEEK_END) : -1; end >= 0)
        file_size_ = static_cast<std::uint64_t>(end);
    return std::max(size, file_size_);
}

int File::read(At at, void* buffer, MPI_Count count, MPI_Datatype type, MPI_Count* moved) {
    *moved = 0;
    meet(at);
    visible(at.collective);
    std::int64_t logical = 0;
    if (const int code = refuse(at, count, false)) {
        if (at.pointer == Pointer::ordered) place(at, 0, logical);  // the others count on it
        return code;
    }
    const auto memory = flatten(type);
    const std::int64_t bytes = memory->size * count;
    if (const int code = place(at, bytes, logical)) return code;
    if (!memory->known && !bypass_) return MPI_ERR_UNSUPPORTED_OPERATION;
    if (bypass_) {
        const Alone alone(*this, logical, bytes, F_RDLCK);
        MPI_Status status;
#if MPI_VERSION >= 4
        const int code =
            PMPI_File_read_at_c(anchor_, logical / etype_, buffer, count, type, &status);
#else
        const int code = PMPI_File_read_at(anchor_, logical / etype_, buffer,
                                           static_cast<int>(count), type, &status);
#endif
        PMPI_Get_elements_x(&status, MPI_BYTE, moved);
        return code;
    }
    std::lock_guard hold(job_->lock());
    if (!look()) return MPI_ERR_IO;
    const int code = load_bytes(logical, static_cast<char*>(buffer), *memory, bytes, *moved);
    if (at.pointer == Pointer::own && *moved < bytes) position_ -= bytes / etype_ - *moved / etype_;
    return code;
}

int File::load_bytes(std::int64_t logical, char* buffer, const Flat& memory, std::int64_t bytes,
                     MPI_Count& got) {
    BlockList blocks;
    walk(*view_, displacement_, logical, bytes, blocks);
    std::uint64_t furthest = 0;
    for (const auto& block : blocks.blocks)
        furthest =
            std::max(furthest, static_cast<std::uint64_t>(
                                   block.begin + (block.count - 1) * block.stride + block.length));
    const std::uint64_t end = size_now(furthest);
    std::vector<char> packed;
    char* to = buffer;
    if (!memory.contiguous) packed.resize(static_cast<std::size_t>(bytes)), to = packed.data();
    std::vector<Wanted> remote;
    bool more = true;
    for (const auto& block : blocks.blocks)
        for (std::int64_t k = 0; k < block.count && more; ++k) {
            const auto begin = static_cast<std::uint64_t>(block.begin + k * block.stride);
            const auto upto = std::min(end, begin + static_cast<std::uint64_t>(block.length));
            if (begin >= upto) {
                more = false;
                break;
            }
            load_range(begin, upto, to + got, remote);
            got += static_cast<std::int64_t>(upto - begin);
            more = upto == begin + static_cast<std::uint64_t>(block.length);
        }
    if (!settle(remote)) {
        got = 0;
        return MPI_ERR_IO;
    }
    if (memory.contiguous || !got) return MPI_SUCCESS;
    BlockList pieces;
    walk(memory, 0, 0, got, pieces);
    const char* from = packed.data();
    for (const auto& piece : pieces.blocks)
        for (std::int64_t k = 0; k < piece.count; ++k, from += piece.length)
            std::memcpy(buffer + piece.begin + k * piece.stride, from,
                        static_cast<std::size_t>(piece.length));
    return MPI_SUCCESS;
}

// Takes in what others have written, as far as the rule promises it now. False: another node does
// not answer.
bool File::look() {
    job_->knowledge().look_here(job_->settings().visibility == Visibility::immediate || atomic_);
    return one_node_ || job_->knowledge().look_elsewhere();
}

void File::load_range(std::uint64_t begin, std::uint64_t end, char* to,
                      std::vector<Wanted>& remote) {
    Index& index = job_->knowledge().index(slot_);
    const std::uint64_t missed = one_node_ ? job_->knowledge().missed() : 0;
    const Store& store = job_->store();
    while (begin < end) {
        const Found found = index.find(begin, end);
        const std::uint64_t bytes = found.upto - begin;
        if (!found.data || found.rank == in_file || found.sequence < missed) {
            read_file(begin, found.upto, to);
        } else if (found.rank & elsewhere) {
            remote.push_back(
                {static_cast<int>(found.rank & ~elsewhere), found.place, bytes, to, begin});
        } else {
            const bool before = job_->there(found.rank, found.place);
            if (before) std::memcpy(to, store.data(found.rank, found.place), bytes);
            std::atomic_thread_fence(std::memory_order_seq_cst);
            // The writer may have needed the space meanwhile: then the file system has the bytes.
            if (!before || !job_->there(found.rank, found.place)) read_file(begin, found.upto, to);
        }
        to += bytes;
        begin = found.upto;
    }
}

void File::read_file(std::uint64_t begin, std::uint64_t end, char* to) const {
    while (begin < end && fd_ >= 0) {
        const ssize_t got = pread(fd_, to, end - begin, static_cast<off_t>(begin));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        to += got;
        begin += static_cast<std::uint64_t>(got);
    }
    std::memset(to, 0, end - begin);  // a hole, or beyond what has been written yet
}

// Brings what other nodes have; false: one cannot be reached, and nobody else has its bytes.
bool File::settle(std::vector<Wanted>& remote) {
    if (remote.empty()) return true;
    job_->remote()->fetch(remote);
    bool good = true;
    for (const auto& wanted : remote) {
        if (wanted.fate == Wanted::gone)
            read_file(wanted.file_begin, wanted.file_begin + wanted.bytes, wanted.to);
        good &= wanted.fate != Wanted::failed;
    }
    return good;
}

// A collective transfer begins when all have come to it: what any of them wrote before is then
// older than what is written now, and seen by what is read now. MPI does not promise that, but its
// own collective transfers begin with an exchange, and libraries above them count on it.
void File::meet(At at) {
    if (!at.collective || job_->settings().visibility != Visibility::immediate) return;
    if (at.pointer != Pointer::ordered)
        PMPI_Barrier(comm_);  // ordered ones meet where they find their places
    hear();
}

// Under the rule that says so, a collective transfer is a moment at which ranks see each other's
// writes.
void File::visible(bool collective) {
    if (collective && !bypass_ && job_->settings().visibility == Visibility::collective) exchange();
}

}  // namespace assay::storage
