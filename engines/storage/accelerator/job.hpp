// The accelerator's state in this process, from MPI_Init to MPI_Finalize: the node's store, this
// rank's writer, and the connections to other nodes.
//
// If the start fails, rank 0 prints the reason once and the program goes on with the MPI's own I/O;
// with ASSAY_IO_REQUIRE it is aborted. After the start there is no such fallback.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/accelerator/conflict_resolver.hpp"
#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/range_set.hpp"
#include "storage/accelerator/settings.hpp"
#include "storage/accelerator/write_directory.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"

namespace assay::storage {

class Remote;

class Job {
public:
    // The job of this process. Null before MPI_Init, after MPI_Finalize, and if the start has
    // failed.
    static Job* current();
    static void start();
    void end();  // collective
    ~Job();

    const Settings& settings() const { return settings_; }
    MPI_Comm world() const { return world_; }
    MPI_Comm self() const { return self_; }  // of this rank alone
    int rank() const { return rank_; }
    int size() const { return size_; }
    std::uint32_t local_rank() const { return static_cast<std::uint32_t>(local_rank_); }
    Store& store() { return *store_; }
    Writer& writer() { return *writer_; }
    Drain& drain() { return *drain_; }
    FileHandles& handles() { return *handles_; }
    Remote* remote() { return remote_.get(); }
    WriteDirectory& directory() { return *directory_; }
    ConflictResolver& resolver() { return resolver_; }
    // Writes the pending data of a file and waits until they are on its medium. Returns 0 or errno.
    int write_and_sync(std::uint32_t slot, const Descriptor& descriptor);
    // Protects the directory, the writer and the views of files of this process.
    std::mutex& lock() { return lock_; }
    int node() const { return locations_[static_cast<std::size_t>(rank_)].node; }
    int node_of(int world_rank) const {
        return locations_[static_cast<std::size_t>(world_rank)].node;
    }
    std::uint32_t local_rank_of(int world_rank) const {
        return locations_[static_cast<std::size_t>(world_rank)].local_rank;
    }
    int nodes() const { return node_count_; }
    // Keeps the descriptor of a closed file open, because its data may have to be written (again).
    void keep_open(std::uint32_t slot, SharedDescriptor descriptor);
    // Records bytes of a closed file that a failed fsync may have lost. If they are not written
    // again, the program does not exit with 0. note_durable(): the bytes were written again and
    // fsynced.
    void note_lost_ranges(std::uint32_t slot, const std::vector<Range>& ranges);
    bool has_lost(std::uint32_t slot);
    void note_durable(std::uint32_t slot, const std::vector<Range>& ranges);
    // Starts the node's background drain, unless it was started. False: `error` says why.
    bool start_background_drain(std::string& error);
    // Prints once that no background drain runs, and why.
    void report_no_background_drain(const std::string& error, const std::string& path);
    // Closes the descriptors of deleted files, so that the file system gets their space back.
    void close_deleted_files();

    // Prints a line to standard error on world rank 0. report_once() prints each message once.
    // report_once_on_this_rank() prints on the rank that calls it.
    void report(const std::string& message) const;
    void report_once(const std::string& message);
    void report_once_on_this_rank(const std::string& message);

    // Whether the data at `ring_offset` of a local rank are still in its ring.
    bool in_ring(std::uint32_t rank, std::uint64_t ring_offset) const {
        return ring_offset >= store_->head(rank).first_byte.load(std::memory_order_acquire);
    }

private:
    // The node of a rank and its number on the node.
    struct Location {
        int node;
        std::uint32_t local_rank;
    };
    // A closed file, and the number of this rank's records at the close.
    struct ClosedFile {
        std::uint32_t slot;
        SharedDescriptor descriptor;
        std::uint64_t end_record;
    };
    void write_and_sync_files();
    bool resolve_repeated_writes();
    void note_final_paths();
    std::string describe_missing_data(bool background) const;
    void finish_store();
    void report_lost() const;
    void report_background() const;
    std::string agree_on_settings();
    std::string create_store();
    void exchange_node_map();
    void agree_on_kept_data();
    int node_on_machine_ = 0;  // with ASSAY_IO_RANKS_PER_NODE a machine has several nodes

    Settings settings_;
    MPI_Comm world_ = MPI_COMM_NULL, self_ = MPI_COMM_NULL, node_comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
    std::vector<Location> locations_;  // by world rank
    int node_count_ = 1;
    std::unique_ptr<Store> store_;
    std::unique_ptr<FileHandles> handles_;
    std::unique_ptr<Writer> writer_;
    std::unique_ptr<Drain> drain_;
    std::unique_ptr<Remote> remote_;
    std::unique_ptr<WriteDirectory> directory_;
    ConflictResolver resolver_{*this};
    std::mutex lock_;
    std::mutex closed_files_lock_;
    std::deque<ClosedFile> closed_files_;
    std::mutex lost_lock_;
    std::map<std::uint32_t, RangeSet> lost_ranges_;  // by slot
    std::string background_error_;      // why start_background_drain() has failed first
    bool no_background_drain_ = false;  // report_no_background_drain() has printed its line
    std::vector<std::string> reported_;
};

}  // namespace assay::storage
