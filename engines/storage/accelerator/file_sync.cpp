// Synchronisation with the file system: what sync and close wait for, and what a failed fsync
// means.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/file.hpp"
#include "storage/store/background.hpp"
#include "storage/store/file_table.hpp"

namespace assay::storage {

// Collective: gives the file to the background drains of its nodes. False: sync and close must wait
// for the file system.
bool AcceleratedFile::hand_to_background_drain() {
    if (!until_memory_) return false;
    const Store& store = job_->store();
    auto& slot = store.file(slot_);
    const bool is_held = !bypass_ && !slot.error.load() && wait_for_background_open(store, slot_);
    if (is_held) {
        slot.acknowledged = 1;
        store.persist(&slot, 3 * cache_line);
    }
    return worst_code(comm_, is_held ? MPI_SUCCESS : MPI_ERR_OTHER) == MPI_SUCCESS;
}

// Collective: drains what the ranks have written, repeats what has failed and resolves conflicts.
// Returns the same error class on every rank.
int AcceleratedFile::flush() {
    if (mode_ & MPI_MODE_RDONLY) return MPI_SUCCESS;
    const std::uint64_t upto = job_->store().head(job_->local_rank()).tail.load();
    job_->drain().finish(job_->local_rank(), upto);
    int error = job_->drain().retry(slot_);
    if (!job_->settings().keep.empty() && conflicts_exist())
        job_->store().file(slot_).conflicted = 1;
    if (!one_node_) {
        const bool repeated = was_repeated();
        std::lock_guard hold(job_->lock());
        if (repeated) job_->resolver().forget();
        if (!error && !job_->resolver().resolve(upto)) error = EIO;
    }
    return worst_code(comm_, report_error(error));
}

// Collective: whether a node has written data again since the last time. They may have come over
// newer data of other nodes.
bool AcceleratedFile::was_repeated() {
    const std::uint32_t repeats = job_->store().file(slot_).repeats.load();
    const bool local = repeats != seen_repeats_;
    seen_repeats_ = repeats;
    return worst_code(comm_, local ? MPI_ERR_OTHER : MPI_SUCCESS) != MPI_SUCCESS;
}

int AcceleratedFile::report_error(int error) const {
    if (!error || !first_of_node_) return mpi_error(error);
    const bool direct = job_->store().file(slot_).route.load() == Route::direct;
    std::fprintf(stderr, "assay io: %s could not be written to the file system: %s; %s\n",
                 path_.c_str(), std::strerror(error),
                 direct ? "what was written since the last sync may be lost; fix: write it again, "
                          "then sync"
                        : "its data stay in the nodes' stores");
    return mpi_error(error);
}

// Collective: afterwards the file system has all data that the ranks wrote before, on its medium.
// Returns the same error class on every rank.
int AcceleratedFile::make_durable() {
    ledger_.begin_sync();
    const int written = flush();
    if (mode_ & MPI_MODE_RDONLY) return written;
    const int error =
        first_of_node_ ? job_->drain().sync(slot_, descriptor_->number()) : 0;  // for its node
    const int synced = conclude_sync(written, report_error(error));
    // Nodes outside of this communicator may have written the file: what is durable is read from
    // the file system from now on.
    auto& slot = job_->store().file(slot_);
    if (!written && !synced) slot.acknowledged = 0;
    if (!written && !synced && all_nodes_) slot.settled = slot.durable.load();
    if (!all_nodes_ && !synced) slot.foreign_before = slot.durable.load();
    return std::max(written, synced);
}

// Collective: what the fsync means for bytes that were written straight into the file. `written`:
// whether all data were handed to the file system; `synced`: of this rank's fsync. Returns the
// worst error class of all ranks; it is an error if bytes may be lost that no rank has written
// again.
int AcceleratedFile::conclude_sync(int written, int synced) {
    const bool lost = !ledger_.lost().empty() || job_->has_lost(slot_);
    int worst[2] = {class_of(synced), lost};
    PMPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_INT, MPI_MAX, comm_);
    if (worst[0]) ledger_.fail_sync();
    else if (written) ledger_.postpone_sync();
    else if (worst[1]) exchange_durable();
    if (worst[0]) may_have_lost_ = true;
    if (worst[0] || written) return worst[0];
    ledger_.succeed_sync();
    if (!worst[1]) return MPI_SUCCESS;
    const int lost_code = worst_code(comm_, ledger_.lost().empty() ? MPI_SUCCESS : MPI_ERR_IO);
    may_have_lost_ = lost_code != MPI_SUCCESS;
    if (lost_code && rank_ == 0)
        std::fprintf(stderr,
                     "assay io: %s: bytes that an earlier fsync may have lost were not written "
                     "again; fix: write them again, then sync\n",
                     path_.c_str());
    return lost_code;
}

// Collective: what one rank's fsync may have lost, another rank may have written again.
void AcceleratedFile::exchange_durable() {
    const RangeSet covered = ledger_.covered();
    const auto& local = covered.certain();
    int count = static_cast<int>(2 * local.size());
    std::vector<int> counts(static_cast<std::size_t>(size_)), starts(counts.size());
    PMPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, comm_);
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
    std::vector<Range> all(static_cast<std::size_t>(starts.back() + counts.back()) / 2);
    static_assert(sizeof(Range) == 2 * sizeof(std::uint64_t));
    PMPI_Allgatherv(local.data(), count, MPI_UINT64_T, all.data(), counts.data(), starts.data(),
                    MPI_UINT64_T, comm_);
    RangeSet durable;
    durable.add(all);
    ledger_.note_durable(durable.certain());
    job_->note_durable(slot_, durable.certain());
}

// The error is told by close, so handles that are opened later begin anew; the program's exit
// status tells of what was not written again by then.
void AcceleratedFile::note_lost_ranges() {
    FileStatus status;
    if (read_status(descriptor_->number(), status) == 0 && !status.links) return;
    if (job_->store().file(slot_).lost.load() && first_of_node_)
        job_->note_lost_ranges(slot_, {{0, ~0ull}});
    job_->note_lost_ranges(slot_, ledger_.lost().possible());
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
    return worst_code(comm_, conflict ? MPI_ERR_OTHER : MPI_SUCCESS) != MPI_SUCCESS;
}

}  // namespace assay::storage
