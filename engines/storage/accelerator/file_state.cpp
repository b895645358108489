// What a file is besides its bytes: size, view, pointers, atomicity, and the moments at which ranks see each other.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "storage/accelerator/file.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {

int File::raise(int code) {
    if (code) PMPI_File_call_errhandler(anchor_, code);
    return code;
}

// ---- what ranks know of each other

// Each rank's new writes become known to all. Within a node the records are there to be read; across nodes they are
// told, in runs, so that a pattern of a million writes is one message of a hundred bytes.
void File::exchange() {
    std::lock_guard hold(job_->lock());
    if (one_node_) {
        PMPI_Barrier(comm_);  // what was written before this is published
        job_->ingest(true);
        return;
    }
    struct Told {
        Run run;
        std::uint32_t world_rank, pad;
    };
    Store& store = job_->store();
    const auto& head = store.head(job_->local());
    std::vector<Told> mine;
    const std::uint64_t tail = head.tail.load();
    const auto generation = store.file(slot_).generation.load();
    for (std::uint64_t k = std::max(told_, head.first_record.load()); k < tail; ++k) {
        const Record& record = store.record(job_->local(), k);
        if (record.file != slot_ || record.generation != generation || static_cast<Kind>(record.kind) != Kind::data) continue;
        const Run run{record.begin, record.length, record.stride, record.count, record.place, k, record.sequence, record.sequence, 0, 1};
        if (!mine.empty() && run.count == 1) {
            auto& last = mine.back().run;
            const bool follows = last.length == run.length && run.place == last.place + last.count * last.length;
            if (follows && last.count == 1 && run.begin >= last.begin + last.length) {
                last.stride = run.begin - last.begin, last.count = 2, last.newest = run.newest;
                continue;
            }
            if (follows && run.begin == last.begin + last.count * last.stride) {
                ++last.count, last.newest = run.newest;
                continue;
            }
        }
        mine.push_back({run, static_cast<std::uint32_t>(job_->rank()), 0});
    }
    told_ = tail;
    const std::uint64_t about[3] = {mine.size(), store.file(slot_).end.load(), store.now()};
    std::vector<std::uint64_t> all(3 * static_cast<std::size_t>(size_));
    PMPI_Allgather(about, 3, MPI_UINT64_T, all.data(), 3, MPI_UINT64_T, comm_);
    std::uint64_t latest = 0, most = 0;
    for (int k = 0; k < size_; ++k) {
        most = std::max(most, all[3 * static_cast<std::size_t>(k)]);
        others_end_ = std::max(others_end_, all[3 * static_cast<std::size_t>(k) + 1]);
        latest = std::max(latest, all[3 * static_cast<std::size_t>(k) + 2]);
    }
    store.no_earlier(latest + 1);
    job_->ingest(true);
    Index& index = job_->index(slot_);
    // In rounds, so that no count and no buffer grows without limit.
    constexpr std::uint64_t round = 4096;
    std::vector<Told> part(round * static_cast<std::size_t>(size_));
    std::vector<int> counts(static_cast<std::size_t>(size_)), offsets(static_cast<std::size_t>(size_));
    for (std::uint64_t from = 0; from < most; from += round) {
        int sum = 0;
        for (std::size_t k = 0; k < counts.size(); ++k) {
            const std::uint64_t has = all[3 * k];
            counts[k] = static_cast<int>((has > from ? std::min(round, has - from) : 0) * sizeof(Told));
            offsets[k] = sum;
            sum += counts[k];
        }
        PMPI_Allgatherv(mine.data() + std::min<std::uint64_t>(from, mine.size()), counts[static_cast<std::size_t>(rank_)], MPI_BYTE,
                        part.data(), counts.data(), offsets.data(), MPI_BYTE, comm_);
        for (std::size_t k = 0; k < static_cast<std::size_t>(sum) / sizeof(Told); ++k) {
            auto told = part[k];
            if (job_->node_of(static_cast<int>(told.world_rank)) == job_->node()) continue;
            told.run.rank = told.world_rank | elsewhere;
            index.add(told.run);
        }
    }
}

int File::sync() {
    if (bypass_) return PMPI_File_sync(anchor_);
    if (mode_ & MPI_MODE_RDONLY) {
        exchange();
        return MPI_SUCCESS;
    }
    exchange();
    // Across nodes, writes that follow must find what was written before in the file: nodes drain each for itself.
    if (one_node_ || !job_->settings().stored) return MPI_SUCCESS;
    int code = drained();
    PMPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, comm_);
    return code;
}

// ---- size

int File::get_size(MPI_Offset* size) {
    std::lock_guard hold(job_->lock());
    *size = static_cast<MPI_Offset>(size_now(~0ull));
    return MPI_SUCCESS;
}

int File::set_size(MPI_Offset size) {
    if (mode_ & MPI_MODE_RDONLY) return MPI_ERR_READ_ONLY;
    if (size < 0) return MPI_ERR_ARG;
    int code = MPI_SUCCESS;
    exchange();
    std::uint64_t now = size_now(~0ull);
    PMPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_UINT64_T, MPI_MAX, comm_);
    if (static_cast<std::uint64_t>(size) < now) {
        // What is cut off must not be written afterwards.
        code = drained();
        PMPI_Barrier(comm_);
    }
    auto& slot = job_->store().file(slot_);
    if (rank_ == 0 && truncate(path_.c_str(), size)) code = MPI_ERR_IO;
    PMPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, comm_);
    if (code) return code;
    file_size_ = others_end_ = static_cast<std::uint64_t>(size);
    slot.end = static_cast<std::uint64_t>(size);
    if (static_cast<std::uint64_t>(size) < now) {
        // On every node, once: each index learns that older bytes beyond are none.
        std::lock_guard hold(job_->lock());
        Record record{};
        record.file = slot_;
        record.generation = slot.generation.load();
        record.kind = static_cast<std::uint64_t>(Kind::truncate);
        record.begin = static_cast<std::uint64_t>(size);
        std::uint64_t place = 0;
        if (!job_->writer().reserve(0, 1, place)) return MPI_ERR_IO;
        job_->writer().begin();
        job_->writer().publish(&record, 1, place, 0);  // of no bytes, at the ring's next position
    }
    PMPI_Barrier(comm_);
    return MPI_SUCCESS;
}

int File::preallocate(MPI_Offset size) {
    MPI_Offset now = 0;
    exchange();
    get_size(&now);
    PMPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_INT64_T, MPI_MAX, comm_);
    return size > now ? set_size(size) : MPI_SUCCESS;
}

// ---- view and pointers

int File::set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype, const char* representation, MPI_Info info) {
    std::uint64_t shared = 0;
    if (displacement == MPI_DISPLACEMENT_CURRENT) {
        if (!(mode_ & MPI_MODE_SEQUENTIAL)) return MPI_ERR_ARG;
        if (rank_ == 0) pointer(0, false, shared);
        PMPI_Bcast(&shared, 1, MPI_UINT64_T, 0, comm_);
        displacement = offset_of(*view_, displacement_, static_cast<std::int64_t>(shared) * etype_);
    }
    const int code = PMPI_File_set_view(anchor_, displacement, etype, filetype, representation, info);
    int worst = code;
    PMPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm_);
    if (code || worst) return code ? code : MPI_ERR_NOT_SAME;
    const auto view = flatten(filetype);
    const bool foreign = std::strcmp(representation, "native") != 0 && std::strcmp(representation, "internal") != 0;
    MPI_Count size = 1;
    PMPI_Type_size_x(etype, &size);
    {
        std::lock_guard hold(job_->lock());
        view_ = view;
        displacement_ = displacement;
        etype_ = std::max<std::int64_t>(1, size);
        position_ = 0;
    }
    if (rank_ == 0) pointer(0, true, shared);
    PMPI_Barrier(comm_);
    if (foreign || !view->known) return into_bypass();
    return MPI_SUCCESS;
}

// From here on the MPI does it: nothing of the file may be anywhere else.
int File::into_bypass() {
    if (bypass_) return MPI_SUCCESS;
    job_->say_once(path_ + ": an atomic mode across nodes or a data representation that is left to the MPI's own I/O");
    exchange();
    int code = drained();
    PMPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, comm_);
    job_->store().file(slot_).forget_before = job_->store().now();
    bypass_ = !code;
    return code;
}

int File::set_atomicity(int on) {
    int range[2] = {on != 0, -(on != 0)};
    PMPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MAX, comm_);
    if (range[0] != -range[1]) return MPI_ERR_NOT_SAME;
    // On a node every transfer is atomic as it is: one publication, one look at what is published.
    if (on) exchange();
    atomic_ = on;
    if (on && !one_node_) {
        if (const int code = into_bypass()) return code;
        if (locks_ < 0) locks_ = ::open(path_.c_str(), (mode_ & MPI_MODE_RDONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    }
    PMPI_Barrier(comm_);
    return MPI_SUCCESS;
}

int File::get_atomicity(int* on) {
    *on = atomic_;
    return MPI_SUCCESS;
}

int File::seek(MPI_Offset offset, int whence) {
    if (mode_ & MPI_MODE_SEQUENTIAL) return MPI_ERR_UNSUPPORTED_OPERATION;
    std::int64_t base = 0;
    if (whence == MPI_SEEK_CUR) base = position_;
    else if (whence == MPI_SEEK_END) {
        std::lock_guard hold(job_->lock());
        base = (bytes_before(*view_, displacement_, static_cast<std::int64_t>(size_now(~0ull))) + etype_ - 1) / etype_;
    } else if (whence != MPI_SEEK_SET) return MPI_ERR_ARG;
    if (base + offset < 0) return MPI_ERR_ARG;
    position_ = base + offset;
    return MPI_SUCCESS;
}

int File::seek_shared(MPI_Offset offset, int whence) {
    std::int64_t base = 0;
    std::uint64_t before = 0;
    exchange();
    if (rank_ == 0) pointer(0, false, before);
    if (whence == MPI_SEEK_CUR) base = static_cast<std::int64_t>(before);
    else if (whence == MPI_SEEK_END) {
        std::lock_guard hold(job_->lock());
        base = (bytes_before(*view_, displacement_, static_cast<std::int64_t>(size_now(~0ull))) + etype_ - 1) / etype_;
    } else if (whence != MPI_SEEK_SET) return MPI_ERR_ARG;
    int code = MPI_SUCCESS;
    if (rank_ == 0) {
        if (base + offset < 0) code = MPI_ERR_ARG;
        else pointer(base + offset, true, before);
    }
    PMPI_Bcast(&code, 1, MPI_INT, 0, comm_);
    return code;
}

int File::get_position(MPI_Offset* offset) {
    *offset = position_;
    return mode_ & MPI_MODE_SEQUENTIAL ? MPI_ERR_UNSUPPORTED_OPERATION : MPI_SUCCESS;
}

int File::get_position_shared(MPI_Offset* offset) {
    std::uint64_t now = 0;
    const int code = pointer(0, false, now);
    *offset = static_cast<MPI_Offset>(now);
    return code;
}

int File::get_byte_offset(MPI_Offset offset, MPI_Offset* displacement) const {
    if (offset < 0) return MPI_ERR_ARG;
    *displacement = offset_of(*view_, displacement_, offset * etype_);
    return MPI_SUCCESS;
}

}  // namespace assay::storage
