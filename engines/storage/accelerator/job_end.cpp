// The end of the accelerator in MPI_Finalize, after the program's libraries: drains the files,
// reports lost data, and removes the store or leaves it to the background drain or to recovery.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "storage/accelerator/job.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/accelerator/superseded.hpp"
#include "storage/store/background.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/other_jobs.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

// Process number of this program if data are not in the file system; 0: all are. Children of the
// program inherit the value, but have another process number.
pid_t pid_with_missing_data = 0;

// A program that ended without an error, although its data are not in the file system, exits
// with 2.
void fail_if_data_are_missing(int status, void*) {
    if (status != 0 || pid_with_missing_data != getpid()) return;
    std::fflush(nullptr);
    _exit(2);
}

// Registered before main(), so that it runs after all exit handlers of the program.
__attribute__((constructor)) void register_exit_status() {
    on_exit(fail_if_data_are_missing, nullptr);
}

}  // namespace

// Reports the bytes that failed fsyncs have lost, of files that still exist.
void Job::report_lost() const {
    for (const auto& [slot, ranges] : lost_ranges_) {
        const auto& file = store_->file(slot);
        if (file.deleted.load()) continue;
        std::fprintf(
            stderr,
            "assay io: %s may lack bytes from %llu on that rank %d wrote: an fsync failed, "
            "and they were not written again; fix: run the program again\n",
            file.path, static_cast<unsigned long long>(ranges.possible().front().begin), rank_);
        pid_with_missing_data = getpid();
    }
}

// Writes the pending data of the files that this rank holds open; a background drain writes the
// others.
void Job::write_and_sync_files() {
    if (!background_drain_runs(*store_))
        drain_->finish(local_rank(), store_->head(local_rank()).tail.load());
    for (const auto slot : handles_->held_slots())
        if (const auto descriptor = handles_->held(slot)) write_and_sync(slot, *descriptor);
}

// Collective: resolves conflicts after failed writes were repeated, because these may have
// overwritten newer data of other nodes. Publishes which data are superseded before the drains and
// recovery of the nodes write what is left, in any order. Returns whether files were written.
bool Job::resolve_repeated_writes() {
    if (node_count_ == 1) return false;
    std::uint64_t counts[3]{};  // repeats, files that are not durable, those with superseded bytes
    for (const auto k : store_->assigned_slots()) {
        const auto& file = store_->file(k);
        if (!file.shared.load() || file.deleted.load()) continue;
        counts[0] += file.repeats.load();
        counts[1] += !is_durable(*store_, k);
    }
    counts[0] += store_->head(local_rank()).unresolved.load() != 0;
    PMPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_UINT64_T, MPI_SUM, world_);
    if (!counts[0] && !counts[1]) return false;
    std::lock_guard guard(lock_);
    int is_unordered = !publish_superseded(*this, all_files);
    PMPI_Allreduce(MPI_IN_PLACE, &is_unordered, 1, MPI_INT, MPI_MAX, world_);
    for (const auto k : store_->assigned_slots())
        counts[2] += store_->file(k).superseded.load() && !is_durable(*store_, k);
    PMPI_Allreduce(MPI_IN_PLACE, &counts[2], 1, MPI_UINT64_T, MPI_SUM, world_);
    // Superseded bytes leave with this node's store, so what supersedes them must be durable.
    if (counts[2]) resolver_.wait_until_pushed(Push::sync, store_->now(), true);
    if (!counts[0] && !is_unordered) return true;
    resolver_.restart();
    const bool resolved = resolver_.resolve(store_->head(local_rank()).drained.load(), Push::drain);
    bool may_be_old = !resolved && (is_unordered || !resolver_.is_in_contact());
    if (!resolved && !may_be_old) may_be_old = !drain_->repeat_unsettled();
    store_->head(local_rank()).unresolved = 0;
    if (may_be_old) {
        std::fprintf(stderr,
                     "assay io: bytes that several nodes wrote may be old in the file system: a "
                     "node does not answer, or a store is full; fix: run the program again\n");
        pid_with_missing_data = getpid();
    }
    return true;
}

// Stores the present paths of files, by which recovery opens them. A file without a name cannot be
// opened again, so its data are dropped.
void Job::note_final_paths() {
    for (const auto slot : handles_->held_slots()) {
        const auto descriptor = handles_->held(slot);
        FileStatus status;
        if (!descriptor || read_status(descriptor->number(), status)) continue;
        if (status.links == 0) store_->file(slot).deleted = 1;
        else update_path(*store_, slot, descriptor->number());
    }
}

// A message for the user that data of this node are not in the file system.
std::string Job::describe_missing_data(bool background) const {
    const std::string error = describe_error(*store_);
    return store_->path() + " on " + store_->superblock().host +
           " holds data that are not in the file system yet" + (error.empty() ? "" : ": " + error) +
           "; fix: assay io " + (background ? "drain " : "recover ") + store_->path();
}

// Called by the node's leader: removes or keeps the store if the file system has all data; else
// leaves it to the background drain or to recovery.
void Job::finish_store() {
    drain_->stop();
    const bool background = background_drain_runs(*store_);
    if (!background) {  // a killed one may have held files
        drain_->retry_all();
        drain_->sync_all();
    }
    if (!settings_.keep.empty()) link_store(*store_);
    if (may_remove(*store_)) return store_->finish();
    // A background drain writes the rest, so only what it has failed to write is missing.
    if (!background || !describe_error(*store_).empty()) {
        std::fprintf(stderr, "assay io: %s\n", describe_missing_data(background).c_str());
        pid_with_missing_data = getpid();
    }
    if (background) store_->set_phase(Phase::detached);
}

// Collective: prints a line if background drains still have data to write.
void Job::report_background() const {
    std::int64_t undrained_totals[3]{};  // bytes, files, nodes
    if (local_rank_ == 0 && store_->superblock().phase.load() == Phase::detached) {
        const StoredData pending = pending_data(*store_);
        undrained_totals[0] = static_cast<std::int64_t>(pending.bytes);
        undrained_totals[1] = pending.files;
        undrained_totals[2] = 1;
    }
    PMPI_Allreduce(MPI_IN_PLACE, undrained_totals, 3, MPI_INT64_T, MPI_SUM, world_);
    if (!undrained_totals[1]) return;
    const std::string files = std::to_string(undrained_totals[1]) + " files ";
    report((undrained_totals[0] ? std::to_string((undrained_totals[0] + (1 << 20) - 1) >> 20) +
                                      " MiB of " + files + "go to the file system in the background"
                                : files + "are synced in the background") +
           ", on " + std::to_string(undrained_totals[2]) +
           " nodes; 'assay io drain' on each node waits for them");
}

void Job::end() {
    write_and_sync_files();
    if (resolve_repeated_writes()) write_and_sync_files();
    report_lost();
    note_final_paths();
    PMPI_Barrier(world_);  // other ranks read this store until here
    remote_.reset();
    directory_.reset();
    writer_.reset();
    if (local_rank_ == 0) finish_store();
    report_background();
    closed_files_.clear();
    drain_.reset();
    handles_.reset();
    PMPI_Barrier(world_);
    PMPI_Comm_free(&node_comm_);
    PMPI_Comm_free(&self_);
    PMPI_Comm_free(&world_);
}

}  // namespace assay::storage
