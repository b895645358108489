// Synchronization of an accelerated file with the file system: drains, fsync, and the bytes that a
// failed fsync may have lost.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "storage/accelerator/errors.hpp"
#include "storage/accelerator/file.hpp"
#include "storage/accelerator/superseded.hpp"
#include "storage/store/background.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {

// Collective: hands the file to the background drains of its nodes. Returns false if sync and close
// must wait for the file system.
bool AcceleratedFile::hand_to_background_drain() {
    if (!until_memory_) return false;
    const Store& store = job_->store();
    auto& slot = store.file(slot_);
    const bool is_held = !bypass_ && !slot.error.load() && wait_for_background_open(store, slot_);
    if (is_held) {
        slot.acknowledged = 1;
        store.persist(&slot, 3 * cache_line);
    }
    return worst_error_class(comm_, is_held ? MPI_SUCCESS : MPI_ERR_OTHER) == MPI_SUCCESS;
}

// Collective: drains the data that the ranks have written, repeats failed writes and resolves
// conflicts. Returns the same error class on every rank.
int AcceleratedFile::flush() {
    if (mode_ & MPI_MODE_RDONLY) return MPI_SUCCESS;
    if (spans_nodes()) {
        std::lock_guard guard(job_->lock());
        publish_superseded(*job_, slot_);
    }
    const std::uint64_t end_record = job_->store().head(job_->local_rank()).tail.load();
    job_->drain().finish(job_->local_rank(), end_record);
    int error = job_->drain().retry(slot_);
    if (!job_->settings().keep.empty() && have_conflicts())
        job_->store().file(slot_).conflicted = 1;
    if (job_->nodes() > 1) {
        // From here on no node writes bytes of which another one has newer data.
        const bool repeated = were_writes_repeated();
        std::lock_guard guard(job_->lock());
        if (repeated) job_->resolver().restart();
        const Push push = has_all_ranks() ? Push::drain : Push::sync;
        if (spans_nodes() && !job_->resolver().resolve(end_record, push) && !error) error = EIO;
    }
    return worst_error_class(comm_, report_error(error));
}

// Collective: whether a node has repeated failed writes since the last call. They may have
// overwritten newer data of other nodes.
bool AcceleratedFile::were_writes_repeated() {
    const std::uint32_t repeats = job_->store().file(slot_).repeats.load();
    const bool local = repeats != seen_repeats_;
    seen_repeats_ = repeats;
    return worst_error_class(comm_, local ? MPI_ERR_OTHER : MPI_SUCCESS) != MPI_SUCCESS;
}

int AcceleratedFile::report_error(int error) const {
    if (!error || !is_first_of_node_) return mpi_error(error);
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
    if (is_first_of_node_) job_->drain().note_interrupted_sync(slot_);
    int written = flush();
    if (mode_ & MPI_MODE_RDONLY) return written;
    // One rank calls fsync for all ranks of its node.
    Drain::SyncResult result;
    if (is_first_of_node_) result = job_->drain().sync(slot_, descriptor_->number());
    // A drain's fsync that has failed meanwhile may have lost what was written without the store.
    const std::uint32_t failed_syncs = job_->store().file(slot_).failed_syncs.load();
    if (failed_syncs != seen_failed_syncs_ && !result.fsync_error && ledger_.is_only_copy())
        result.fsync_error = EIO;
    seen_failed_syncs_ = failed_syncs;
    // Later writes may become durable before all ranks have concluded.
    auto& slot = job_->store().file(slot_);
    const std::uint64_t durable = slot.durable.load();
    if (!written || result.fsync_error) report_error(result.error());
    const int synced = conclude_sync(written, result);
    if (synced) seen_failed_syncs_ = job_->store().file(slot_).failed_syncs.load();
    // Nodes without a rank in this communicator may have written the file, so durable data are read
    // from the file system from now on.
    if (!written && !synced) slot.acknowledged = 0;
    if (!written && !synced && has_all_ranks() && is_first_of_node_) slot.settled = durable;
    if (!has_all_nodes_ && !synced) raise_to(slot.foreign_before, slot.durable.load());
    return std::max(written, synced);
}

// Collective: updates the ledgers of bytes that were written without the store, after an fsync.
// `written`: the error class of writing the stores' data, raised by what the ranks' fsyncs have
// found. `result`: of this rank's fsync. Returns the worst error class of all ranks' fsyncs; bytes
// that an earlier fsync may have lost and no rank has written again are an error.
int AcceleratedFile::conclude_sync(int& written, const Drain::SyncResult& result) {
    const bool lost = !ledger_.lost().empty() || job_->has_lost(slot_);
    int worst[3] = {error_class_of(mpi_error(result.fsync_error)), lost,
                    error_class_of(mpi_error(result.write_error))};
    PMPI_Allreduce(MPI_IN_PLACE, worst, 3, MPI_INT, MPI_MAX, comm_);
    written = std::max(written, worst[2]);
    if (worst[0]) ledger_.fail_sync();
    else if (written) ledger_.postpone_sync();
    else if (worst[1]) exchange_durable();
    if (worst[0]) may_lose_ = true;
    if (worst[0] || written) return worst[0];
    ledger_.succeed_sync();
    const bool is_direct = job_->store().file(slot_).route.load() == Route::direct;
    if (!worst[1]) {
        may_lose_ = is_direct;
        return MPI_SUCCESS;
    }
    const int lost_code =
        worst_error_class(comm_, ledger_.lost().empty() ? MPI_SUCCESS : MPI_ERR_IO);
    may_lose_ = is_direct || lost_code != MPI_SUCCESS;
    if (lost_code && rank_ == 0)
        std::fprintf(stderr,
                     "assay io: %s: bytes that an earlier fsync may have lost were not written "
                     "again; fix: write them again, then sync\n",
                     path_.c_str());
    return lost_code;
}

// Collective: tells all ranks which bytes this sync makes durable, because a rank may have written
// bytes again that another rank has lost.
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

// Moves the lost bytes of a file that is closed to the job. close() reports the error, so a handle
// that is opened later starts without it. If the bytes are not written again, the program's exit
// status is not 0.
void AcceleratedFile::note_lost_ranges() {
    FileStatus status;
    if (read_status(descriptor_->number(), status) == 0 && !status.links) return;
    job_->note_lost_ranges(slot_, ledger_.lost().possible());
}

// Collective: whether data of any rank conflict with those of another node. Such files are drained
// before close returns, because the background drains of several nodes have no order.
bool AcceleratedFile::have_conflicts() {
    if (job_->nodes() == 1) return false;
    bool conflict = false;
    if (spans_nodes()) {
        std::lock_guard guard(job_->lock());
        conflict = job_->resolver().has_conflicts();
    }
    return worst_error_class(comm_, conflict ? MPI_ERR_OTHER : MPI_SUCCESS) != MPI_SUCCESS;
}

}  // namespace assay::storage
