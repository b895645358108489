// This process's part in the job: the node's store, its own end of it, and what it needs of the
// others.
//
// All of it stands between MPI_Init and MPI_Finalize. Whatever hinders it is said once, by rank 0,
// and the program goes on with the MPI's own I/O (or does not start, with ASSAY_IO_REQUIRE): before
// any data are taken, never later.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/accelerator/knowledge.hpp"
#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/settings.hpp"
#include "storage/accelerator/settlement.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"

namespace assay::storage {

class Remote;

class Job {
public:
    // The job, while it stands; null before MPI_Init, after MPI_Finalize and where nothing is
    // accelerated.
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
    Knowledge& knowledge() { return *knowledge_; }
    Settlement& settlement() { return settlement_; }
    std::mutex& lock() { return lock_; }
    int node() const { return nodes_[static_cast<std::size_t>(rank_)].node; }
    int node_of(int world_rank) const { return nodes_[static_cast<std::size_t>(world_rank)].node; }
    std::uint32_t local_of(int world_rank) const {
        return nodes_[static_cast<std::size_t>(world_rank)].local;
    }
    int nodes() const { return node_count_; }
    // A word for the user: on standard error, by world rank 0 alone.
    void say(const std::string& words) const;
    void say_once(const std::string& words);

    // Whether data at `place` of the local rank's ring are still there.
    bool there(std::uint32_t rank, std::uint64_t place) const {
        return place >= store_->head(rank).first_byte.load(std::memory_order_acquire);
    }

private:
    struct Where {
        int node;
        std::uint32_t local;
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
    std::unique_ptr<Knowledge> knowledge_;
    Settlement settlement_{*this};
    std::mutex lock_;
    std::vector<std::string> said_;
};

}  // namespace assay::storage
