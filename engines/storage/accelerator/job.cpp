#include "storage/accelerator/job.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "storage/accelerator/remote.hpp"

namespace assay::storage {
namespace {

// exit() does not destroy the job: a program that ends without MPI_Finalize must not wait for other
// ranks.
std::unique_ptr<Job>& job = *new std::unique_ptr<Job>;

// An error message if the running MPI is not the one that this library was compiled for, since the
// handles of different MPIs differ. Empty if it is.
std::string check_mpi() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING]{};
    int length = 0;
    PMPI_Get_library_version(text, &length);
#ifdef OMPI_MAJOR_VERSION
    char expected[64];
    std::snprintf(expected, sizeof expected, "Open MPI v%d.", OMPI_MAJOR_VERSION);
    const bool same = std::strstr(text, expected) != nullptr;
#else
    const std::string expected = "MPICH " + std::string(MPICH_VERSION).substr(0, 1);
    const bool same =
        std::strstr(text, "MPICH") != nullptr || std::strstr(text, "Intel") != nullptr;
#endif
    if (same) return {};
    return std::string("this library is for ") + &expected[0] + ", but the program runs with " +
           std::string(text, std::strcspn(text, "\n,")) + "; fix: load the libassay-io of that MPI";
}

bool true_on_all_ranks(MPI_Comm comm, bool value) {
    int all_true = value;
    PMPI_Allreduce(MPI_IN_PLACE, &all_true, 1, MPI_INT, MPI_MIN, comm);
    return all_true;
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

Job* Job::current() { return job.get(); }

Job::~Job() = default;

void Job::report(const std::string& message) const {
    if (rank_ == 0) std::fprintf(stderr, "assay io: %s\n", message.c_str());
}

void Job::report_once(const std::string& message) {
    if (std::find(reported_.begin(), reported_.end(), message) != reported_.end()) return;
    reported_.push_back(message);
    report(message);
}

void Job::start() {
    if (const auto mismatch = check_mpi(); !mismatch.empty()) {
        std::fprintf(stderr, "assay io: %s\n", mismatch.c_str());
        std::_Exit(2);  // MPI_Abort needs a valid communicator handle
    }
    job.reset(new Job);
    std::string error = job->agree_on_settings();
    if (error.empty()) error = job->create_store();
    if (error.empty()) return;
    const bool required = job->settings_.required;
    job->report(error + (required ? "" : "; the MPI's own I/O is used"));
    const MPI_Comm world = job->world_;
    job.reset();
    if (required) PMPI_Abort(world, 2);
}

// Reads the settings; returns an error if they are invalid or differ between ranks.
std::string Job::agree_on_settings() {
    PMPI_Comm_dup(MPI_COMM_WORLD, &world_);
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
    if (local_rank_ == 0) {
        store_ =
            Store::create(settings_.store, settings_.size, static_cast<std::uint32_t>(local_size_),
                          name, std::string(name) + "-" + std::to_string(rank_), failure);
        if (store_) std::snprintf(path, sizeof path, "%s", store_->path().c_str());
    }
    PMPI_Bcast(path, sizeof path, MPI_BYTE, 0, node_comm_);
    if (local_rank_ != 0 && path[0]) store_ = Store::attach(path, failure);
    if (const auto message = first_message(world_, failure.what); !message.empty()) {
        if (store_ && local_rank_ == 0) store_->remove();
        return message;
    }
    exchange_node_map();
    writer_ = std::make_unique<Writer>(*store_, local_rank());
    drain_ = std::make_unique<Drain>(*store_, settings_.drain_threads);
    directory_ = std::make_unique<WriteDirectory>(*this);
    std::string error;
    if (node_count_ > 1) {
        writer_->set_eviction_guard([this](std::uint64_t first, std::uint64_t drained) {
            return resolver_.prepare_eviction(first, drained);
        });
        remote_ = Remote::start(*this, error);
    }
    error = first_message(world_, error);
    if (!error.empty()) {
        remote_.reset(), directory_.reset(), drain_.reset(), writer_.reset();
        if (local_rank_ == 0) store_->remove();
        return error;
    }
    writer_->prefault(settings_.prefault_seconds);
    PMPI_Barrier(node_comm_);
    writer_->map_other_rings(settings_.prefault_seconds / 2);
    if (local_rank_ == 0) {
        store_->superblock().phase = Phase::active;
        drain_->start(settings_.drain_lag_ms);
    }
    PMPI_Barrier(world_);
    return {};
}

void Job::exchange_node_map() {
    int node = rank_;  // world rank of the node's local rank 0; identifies the node
    PMPI_Bcast(&node, 1, MPI_INT, 0, node_comm_);
    const int location[2] = {node, local_rank_};
    std::vector<int> locations(2 * static_cast<std::size_t>(size_));
    PMPI_Allgather(location, 2, MPI_INT, locations.data(), 2, MPI_INT, world_);
    nodes_.resize(static_cast<std::size_t>(size_));
    std::unordered_map<int, int> node_numbers;
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
        const auto entry =
            node_numbers.emplace(locations[2 * k], static_cast<int>(node_numbers.size())).first;
        nodes_[k] = {entry->second, static_cast<std::uint32_t>(locations[2 * k + 1])};
    }
    node_count_ = static_cast<int>(node_numbers.size());
}

void Job::end() {
    if (!job) return;
    auto& self = *job;
    const bool drained =
        self.settings_.detach ||
        self.drain_->finish(self.local_rank(), self.store_->head(self.local_rank()).tail.load());
    const bool all_drained =
        true_on_all_ranks(self.world_, drained);  // other ranks read this store until here
    self.remote_.reset();
    self.directory_.reset();
    self.writer_.reset();
    if (self.local_rank_ == 0) {
        self.drain_->stop();
        auto& superblock = self.store_->superblock();
        bool pending = false;
        for (std::uint32_t rank = 0; rank < self.store_->ranks(); ++rank)
            pending |=
                self.store_->head(rank).drained.load() != self.store_->head(rank).tail.load();
        if (const auto lost = superblock.discarded.load())
            std::fprintf(stderr,
                         "assay io: %lu bytes were not drained: their files were removed or "
                         "replaced\n",
                         static_cast<unsigned long>(lost));
        if (!pending) self.store_->remove();
        else if (all_drained && self.settings_.detach) superblock.phase = Phase::detached;
        if (pending)
            std::fprintf(
                stderr,
                "assay io: %s on %s holds data that are not in the file system yet%s%s; fix: "
                "assay io %s %s\n",
                self.store_->path().c_str(), superblock.host, superblock.drain_failed ? ": " : "",
                superblock.drain_failed ? std::strerror(static_cast<int>(superblock.drain_failed))
                                        : "",
                self.settings_.detach ? "drain" : "recover", self.store_->path().c_str());
    }
    self.drain_.reset();
    PMPI_Barrier(self.world_);
    PMPI_Comm_free(&self.node_comm_);
    PMPI_Comm_free(&self.world_);
    job.reset();
}

}  // namespace assay::storage
