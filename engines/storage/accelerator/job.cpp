// Starts the accelerator in MPI_Init: reads the settings, creates or attaches the node's store, and
// connects the nodes. Remembers which files of the program are closed and which data are lost.
#include "storage/accelerator/job.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "storage/accelerator/remote.hpp"
#include "storage/store/background.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/kept.hpp"
#include "storage/store/other_jobs.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t max_closed_files = 64;

// The job of this process, between MPI_Init and MPI_Finalize. exit() does not destroy it, because a
// program that ends without MPI_Finalize must not wait for other ranks.
std::unique_ptr<Job>& current_job = *new std::unique_ptr<Job>;

// An error message if the program's MPI is not the one that this library was compiled for, since
// the handles of different MPIs differ. Empty if it is the same.
std::string check_mpi() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING]{};
    int length = 0;
    PMPI_Get_library_version(text, &length);
#ifdef OMPI_MAJOR_VERSION
    char expected[64];
    std::snprintf(expected, sizeof expected, "Open MPI v%d.", OMPI_MAJOR_VERSION);
    // 4 and 5 have one ABI (libmpi.so.40).
    const bool has_abi_of_4 =
        std::strstr(text, "Open MPI v4.") || std::strstr(text, "Open MPI v5.");
    const bool same = std::strstr(text, expected) != nullptr ||
                      (has_abi_of_4 && (OMPI_MAJOR_VERSION == 4 || OMPI_MAJOR_VERSION == 5));
#else
    const std::string expected = "MPICH " + std::string(MPICH_VERSION).substr(0, 1);
    const bool same =
        std::strstr(text, "MPICH") != nullptr || std::strstr(text, "Intel") != nullptr;
#endif
    if (same) return {};
    return std::string("this library is for ") + &expected[0] + ", but the program runs with " +
           std::string(text, std::strcspn(text, "\n,")) + "; fix: load the libassay-io of that MPI";
}

int leave_out_copy(MPI_Comm, int, void*, void*, void*, int* is_copied) {
    *is_copied = 0;
    return MPI_SUCCESS;
}
int end_job(MPI_Comm, int, void*, void*) {
    if (current_job) current_job->end();
    current_job.reset();
    return MPI_SUCCESS;
}

// MPI_Finalize begins by deleting the attributes of MPI_COMM_SELF, the last one first. Libraries
// close their files then (MPI 4.0, 11.2.4). The job's attribute is the first one.
void end_with_self() {
    int key = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(leave_out_copy, end_job, &key, nullptr);
    PMPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    PMPI_Comm_free_keyval(&key);
}

// The message of the first rank that has one, on every rank.
std::string first_message(MPI_Comm comm, const std::string& message) {
    int rank, size;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    int first_rank = message.empty() ? size : rank;
    PMPI_Allreduce(MPI_IN_PLACE, &first_rank, 1, MPI_INT, MPI_MIN, comm);
    if (first_rank == size) return {};
    char text[1024]{};
    std::snprintf(text, sizeof text, "%s", message.c_str());
    PMPI_Bcast(text, sizeof text, MPI_BYTE, first_rank, comm);
    return text;
}

std::string new_job_name() {
    char text[32];
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const std::uint64_t seed[] = {static_cast<std::uint64_t>(now.tv_sec),
                                  static_cast<std::uint64_t>(now.tv_nsec),
                                  static_cast<std::uint64_t>(getpid())};
    std::snprintf(text, sizeof text, "%012lx",
                  static_cast<unsigned long>(XXH3_64bits(seed, sizeof seed) >> 16));
    return text;
}

}  // namespace

Job* Job::current() { return current_job.get(); }

Job::~Job() = default;

void Job::report(const std::string& message) const {
    if (rank_ == 0) std::fprintf(stderr, "assay io: %s\n", message.c_str());
}

void Job::report_once(const std::string& message) {
    if (rank_ == 0) report_once_on_this_rank(message);
}

void Job::report_once_on_this_rank(const std::string& message) {
    if (std::find(reported_.begin(), reported_.end(), message) != reported_.end()) return;
    reported_.push_back(message);
    std::fprintf(stderr, "assay io: %s\n", message.c_str());
}

void Job::start() {
    if (const auto mismatch = check_mpi(); !mismatch.empty()) {
        std::fprintf(stderr, "assay io: %s\n", mismatch.c_str());
        std::_Exit(2);  // MPI_Abort needs a valid communicator handle
    }
    current_job.reset(new Job);
    std::string error = current_job->agree_on_settings();
    if (error.empty()) error = current_job->create_store();
    if (error.empty()) return end_with_self();
    const bool required = current_job->settings_.required;
    current_job->report(error + (required ? "" : "; the MPI's own I/O is used"));
    const MPI_Comm world = current_job->world_;
    current_job.reset();
    if (required) PMPI_Abort(world, 2);
}

// Reads the settings; returns an error if they are invalid or differ between ranks.
std::string Job::agree_on_settings() {
    PMPI_Comm_dup(MPI_COMM_WORLD, &world_);
    PMPI_Comm_dup(MPI_COMM_SELF, &self_);
    PMPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(world_, &rank_);
    PMPI_Comm_size(world_, &size_);
    settings_ = Settings::from_environment();
    const auto digest = static_cast<std::int64_t>(settings_.digest());
    // The maxima of both are the largest digest and the negated smallest one.
    std::int64_t range[2] = {digest, -digest};
    PMPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT64_T, MPI_MAX, world_);
    if (range[0] != -range[1])
        return "the ranks have different settings (ASSAY_IO_*); fix: pass the same environment to "
               "all";
    return settings_.error;
}

std::string Job::create_store() {
    PMPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node_comm_);
    if (settings_.ranks_per_node) {
        MPI_Comm full_node = node_comm_;
        int node_rank;
        PMPI_Comm_rank(full_node, &node_rank);
        node_on_machine_ = node_rank / static_cast<int>(settings_.ranks_per_node);
        PMPI_Comm_split(full_node, node_rank / static_cast<int>(settings_.ranks_per_node), rank_,
                        &node_comm_);
        PMPI_Comm_free(&full_node);
    }
    PMPI_Comm_rank(node_comm_, &local_rank_);
    PMPI_Comm_size(node_comm_, &local_size_);
    char name[64]{};
    if (rank_ == 0)
        std::snprintf(name, sizeof name, "%.32s",
                      settings_.job.empty() ? new_job_name().c_str() : settings_.job.c_str());
    PMPI_Bcast(name, sizeof name, MPI_BYTE, 0, world_);

    Failure failure;
    char path[4096]{};
    const auto begin = std::chrono::steady_clock::now();
    if (local_rank_ == 0) {
        remove_empty_stores(settings_.store);
        const std::string store_name =
            settings_.keep.empty()
                ? std::string(name) + "-" + std::to_string(rank_)
                : "keep-" + settings_.keep + "-" + std::to_string(node_on_machine_);
        store_ =
            Store::create(settings_.store, settings_.size, static_cast<std::uint32_t>(local_size_),
                          name, store_name, failure, settings_.keep);
        if (store_) std::snprintf(path, sizeof path, "%s", store_->path().c_str());
        if (store_ && store_->replaced_damaged())
            std::fprintf(stderr,
                         "assay io: %s is damaged since the machine was restarted; the files of "
                         "the earlier job are read from the file system\n",
                         path);
    }
    PMPI_Bcast(path, sizeof path, MPI_BYTE, 0, node_comm_);
    const std::chrono::duration<double> creation = std::chrono::steady_clock::now() - begin;
    if (local_rank_ != 0 && path[0]) store_ = Store::attach(path, true, failure);
    if (const auto message = first_message(world_, failure.message); !message.empty()) {
        if (store_ && local_rank_ == 0 && !store_->taken_over()) store_->remove();
        return message;
    }
    exchange_node_map();
    agree_on_kept_data();
    writer_ = std::make_unique<Writer>(*store_, local_rank());
    handles_ = std::make_unique<FileHandles>(*store_, local_rank());
    drain_ = std::make_unique<Drain>(*store_, *handles_, settings_.drain_threads);
    writer_->set_drain(drain_.get());
    directory_ = std::make_unique<WriteDirectory>(*this);
    std::string error;
    if (node_count_ > 1) {
        writer_->set_eviction_guard([this](std::uint64_t first, std::uint64_t end) {
            return resolver_.prepare_eviction(first, end);
        });
        remote_ = Remote::start(*this, error);
    }
    if (error.empty() && writer_->claim())
        error =
            store_->path() + " has no space left for the data of a rank; fix: free memory there";
    error = first_message(world_, error);
    if (!error.empty()) {
        remote_.reset(), directory_.reset(), drain_.reset(), writer_.reset(), handles_.reset();
        if (local_rank_ == 0 && !store_->taken_over()) store_->remove();
        return error;
    }
    // A large store's tables have taken a part of the time.
    writer_->prefault(std::max(0.0, settings_.prefault_seconds - creation.count()));
    PMPI_Barrier(node_comm_);
    writer_->map_other_rings(settings_.prefault_seconds / 2);
    if (local_rank_ == 0) {
        store_->set_phase(Phase::active);
        drain_->start(settings_.drain_lag_ms, true);
        // Started by the first open, it would take longer than many a write. The open reports an
        // error.
        if (settings_.until_memory) start_background_drain(error);
    }
    PMPI_Barrier(world_);
    return {};
}

void Job::exchange_node_map() {
    int leader = rank_;  // world rank of the node's local rank 0, which identifies the node
    PMPI_Bcast(&leader, 1, MPI_INT, 0, node_comm_);
    const int location[2] = {leader, local_rank_};
    std::vector<int> locations(2 * static_cast<std::size_t>(size_));
    PMPI_Allgather(location, 2, MPI_INT, locations.data(), 2, MPI_INT, world_);
    locations_.resize(static_cast<std::size_t>(size_));
    std::unordered_map<int, int> node_numbers;
    for (std::size_t k = 0; k < locations_.size(); ++k) {
        const auto entry =
            node_numbers.emplace(locations[2 * k], static_cast<int>(node_numbers.size())).first;
        locations_[k] = {entry->second, static_cast<std::uint32_t>(locations[2 * k + 1])};
    }
    node_count_ = static_cast<int>(node_numbers.size());
}

// Collective: decides which data of an earlier job the kept stores may serve. If a node of that job
// is missing, it may have newer data of files that several nodes had opened.
void Job::agree_on_kept_data() {
    if (settings_.keep.empty()) return;
    KeptStoreInfo local_info;
    if (local_rank_ == 0) local_info = kept_store_info(*store_);
    std::vector<KeptStoreInfo> kept_stores(static_cast<std::size_t>(size_));
    PMPI_Allgather(&local_info, sizeof local_info, MPI_BYTE, kept_stores.data(), sizeof local_info,
                   MPI_BYTE, world_);
    bool all_stores_present = true;
    const KeptStoreInfo* first = nullptr;
    for (std::size_t rank = 0; rank < kept_stores.size(); ++rank) {
        if (locations_[rank].local_rank != 0) continue;
        if (!first) first = &kept_stores[rank];
        all_stores_present &= kept_stores[rank].job && kept_stores[rank].job == first->job &&
                              !kept_stores[rank].evicted_shared;
    }
    all_stores_present &= first->nodes == static_cast<std::uint64_t>(node_count_);
    if (local_rank_ == 0) {
        if (store_->taken_over())
            invalidate_stale_files(*store_, local_info.nodes == 1 && node_count_ == 1,
                                   all_stores_present);
        store_->superblock().nodes = static_cast<std::uint32_t>(node_count_);
    }
    PMPI_Barrier(node_comm_);
}

int Job::write_and_sync(std::uint32_t slot, const Descriptor& descriptor) {
    const int error = drain_->retry(slot);
    return error ? error : drain_->sync(slot, descriptor.number()).error();
}

void Job::keep_open(std::uint32_t slot, SharedDescriptor descriptor) {
    close_deleted_files();
    std::lock_guard guard(closed_files_lock_);
    closed_files_.push_back({slot, std::move(descriptor),
                             store_->head(local_rank()).tail.load(std::memory_order_relaxed)});
    if (closed_files_.size() <= max_closed_files) return;
    ClosedFile oldest = std::move(closed_files_.front());
    closed_files_.pop_front();
    drain_->finish(local_rank(), oldest.end_record);
    // Without its descriptor a file that is renamed may not be found when it is written again.
    if (write_and_sync(oldest.slot, *oldest.descriptor))
        return closed_files_.push_back(std::move(oldest));
    update_path(*store_, oldest.slot, oldest.descriptor->number());
    handles_->release(oldest.slot, oldest.descriptor);
}

void Job::close_deleted_files() {
    std::lock_guard guard(closed_files_lock_);
    std::erase_if(closed_files_, [this](const ClosedFile& file) {
        FileStatus status;
        if (read_status(file.descriptor->number(), status) == 0 && !status.links)
            drop_deleted_file(*store_, status);
        if (!store_->file(file.slot).deleted.load()) return false;
        handles_->release(file.slot, file.descriptor);
        return true;
    });
}

void Job::note_lost_ranges(std::uint32_t slot, const std::vector<Range>& ranges) {
    const std::lock_guard guard(lost_lock_);
    if (!ranges.empty()) lost_ranges_[slot].add(ranges);
}

bool Job::has_lost(std::uint32_t slot) {
    const std::lock_guard guard(lost_lock_);
    return lost_ranges_.contains(slot);
}

void Job::note_durable(std::uint32_t slot, const std::vector<Range>& ranges) {
    const std::lock_guard guard(lost_lock_);
    const auto entry = lost_ranges_.find(slot);
    if (entry == lost_ranges_.end()) return;
    entry->second.remove(ranges);
    if (entry->second.empty()) lost_ranges_.erase(entry);
}

bool Job::start_background_drain(std::string& error) {
    const bool runs =
        storage::start_background_drain(*store_,
                                        {settings_.drain_program, settings_.drain_threads,
                                         settings_.drain_lag_ms, settings_.retry_s},
                                        error);
    // The first error says why; later ones only that it does not run.
    if (!runs && background_error_.empty()) background_error_ = error;
    if (!runs) error = background_error_;
    return runs;
}

void Job::report_no_background_drain(const std::string& error, const std::string& path) {
    if (no_background_drain_) return;
    no_background_drain_ = true;
    std::fprintf(stderr, "assay io: no background drain: %s; close waits for %s and later files\n",
                 error.c_str(), path.c_str());
}

}  // namespace assay::storage
