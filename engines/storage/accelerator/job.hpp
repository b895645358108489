// This process's part in the job: the node's store, its own end of it, what it knows of the others' writes.
//
// All of it stands between MPI_Init and MPI_Finalize. Whatever hinders it is said once, by rank 0, and the program goes
// on with the MPI's own I/O (or does not start, with ASSAY_IO_REQUIRE): before any data are taken, never later.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/settings.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/index.hpp"
#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"

namespace assay::storage {

class Remote;

// Ranks of other nodes are known to an index by their world rank with this bit; those of this node by their place in it.
constexpr std::uint32_t elsewhere = 1u << 31;

class Job {
public:
    // The job, while it stands; null before MPI_Init, after MPI_Finalize and where nothing is accelerated.
    static Job* current();
    static void start();
    static void end();
    ~Job();

    const Settings& settings() const { return settings_; }
    MPI_Comm world() const { return world_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    std::uint32_t local() const { return local_; }
    Store& store() { return *store_; }
    Writer& writer() { return *writer_; }
    Drain& drain() { return *drain_; }
    Remote* remote() { return remote_.get(); }
    std::mutex& lock() { return lock_; }
    int node() const { return nodes_[static_cast<std::size_t>(rank_)].node; }
    int node_of(int world_rank) const { return nodes_[static_cast<std::size_t>(world_rank)].node; }
    std::uint32_t local_of(int world_rank) const { return nodes_[static_cast<std::size_t>(world_rank)].local; }
    int nodes() const { return node_count_; }
    // A word for the user: on standard error, by world rank 0 alone.
    void say(const std::string& words) const;
    void say_once(const std::string& words);

    // Takes in what the ranks of this node have published since; or this rank alone.
    void ingest(bool all);
    // What is known of a file (slot and generation).
    Index& index(std::uint32_t slot);
    // Whether data at `place` of the local rank's ring are still there.
    bool there(std::uint32_t rank, std::uint64_t place) const { return place >= store_->head(rank).first_byte.load(std::memory_order_acquire); }

private:
    struct Where {
        int node;
        std::uint32_t local;
    };
    struct Known {
        std::uint32_t generation;
        std::uint64_t valid_from;
        Index index;
    };

    std::string agree();
    std::string found_store();
    void spread_nodes();

    Settings settings_;
    MPI_Comm world_ = MPI_COMM_NULL, node_comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
    std::uint32_t local_ = 0;
    std::vector<Where> nodes_;
    int node_count_ = 1;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Writer> writer_;
    std::unique_ptr<Drain> drain_;
    std::unique_ptr<Remote> remote_;
    std::mutex lock_;
    std::vector<std::uint64_t> seen_;
    std::unordered_map<std::uint32_t, Known> known_;
    std::vector<std::string> said_;
};

}  // namespace assay::storage
