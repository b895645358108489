// An accelerated open file: its view, its file pointers, and transfers between the program's
// buffers and the stores.
//
// The MPI library opens the file too, on MPI_COMM_SELF, and the program gets that handle. So calls
// that this library does not intercept, error handlers and Fortran handles work with it. Transfers
// that this library cannot accelerate (atomic mode across nodes, foreign data representations) go
// through the MPI library, after the stores are drained (`bypass_`).
//
// Functions that return int return MPI_SUCCESS or an MPI error code.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "storage/accelerator/file_info.hpp"
#include "storage/accelerator/flat.hpp"
#include "storage/accelerator/job.hpp"
#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/remote.hpp"
#include "storage/accelerator/sync_ledger.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/file_table.hpp"

namespace assay::storage {

// Where a transfer begins. The kinds are those of MPI 4.0, 14.4: explicit offsets, individual file
// pointers, shared file pointers (with `ordered` for the collective calls in rank order).
enum class PositionKind { explicit_offset, individual, shared, ordered };
struct TransferStart {
    PositionKind kind = PositionKind::individual;
    MPI_Offset offset = 0;  // in etypes, of explicit_offset
    bool collective = false;
};

class AcceleratedFile {
public:
    static int open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* handle);
    // The accelerated file of a handle; null if it has none.
    static AcceleratedFile* find(MPI_File handle);
    static int close(MPI_File* handle);
    // Deletes the file and drops its data in the store.
    static int remove(const char* name, MPI_Info info);
    ~AcceleratedFile();

    int write(TransferStart start, const void* buffer, MPI_Count count, MPI_Datatype type,
              MPI_Count* bytes_moved);
    int read(TransferStart start, void* buffer, MPI_Count count, MPI_Datatype type,
             MPI_Count* bytes_moved);

    int sync();
    int set_size(MPI_Offset size);
    int preallocate(MPI_Offset size);
    int get_size(MPI_Offset* size);
    int set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                 const char* representation, MPI_Info info);
    int set_atomicity(int on);
    int get_atomicity(int* on);
    int seek(MPI_Offset offset, int whence);
    int seek_shared(MPI_Offset offset, int whence);
    int get_position(MPI_Offset* offset);
    int get_position_shared(MPI_Offset* offset);
    int get_byte_offset(MPI_Offset offset, MPI_Offset* displacement) const;
    int get_info(MPI_Info* info) const;
    int mode() const { return mode_; }
    MPI_Comm comm() const { return comm_; }
    // Calls the error handler of the file, if `code` is an error.
    int raise(int code);

    // The status of a split collective transfer, between its begin and its end call.
    struct SplitTransfer {
        MPI_Status status{};
        bool active = false;
    } split;

private:
    class RangeLock;
    // The memory's type, the bytes, and the first of them in the data of the view.
    struct Transfer {
        std::shared_ptr<const FlatType> memory;
        std::int64_t bytes = 0, logical = 0;
    };
    // Bytes. What is not contiguous is transferred in parts, so that neither copies nor lists of
    // blocks need more memory however large the transfer is.
    static constexpr std::int64_t max_part = 16 << 20;
    AcceleratedFile() = default;
    int wait_for_other_jobs();
    bool acquire_resources(int mode, bool in_world);
    bool find_nodes();
    bool open_descriptor(FileStatus& status);
    bool claim_shared_pointer();
    void synchronize_after_open();
    int begin_position();
    void choose_sync_level(bool wanted);
    bool hand_to_background_drain();
    void release_resources(bool complete, bool handed_over);
    bool has_last_name() const;
    void unlink_name() const;
    bool spans_nodes() const;
    bool has_all_ranks() const { return size_ == job_->size(); }
    int wait_for_other_nodes();
    int check_transfer(TransferStart start, MPI_Count count, bool writing) const;
    int check_resize(MPI_Offset size) const;
    int advance_position(TransferStart start, std::int64_t bytes, std::int64_t& logical);
    int begin_transfer(TransferStart start, MPI_Count count, MPI_Datatype type, bool writing,
                       Transfer& transfer);
    int write_data(TransferStart start, const void* buffer, MPI_Count count, MPI_Datatype type,
                   MPI_Count* bytes_moved);
    bool may_write_directly() const;
    void choose_route();
    void join_route();
    void leave_direct_route();
    bool fits(std::int64_t logical, std::int64_t bytes);
    void list_blocks(std::int64_t logical, std::int64_t bytes, BlockList& blocks);
    bool is_direct(const Transfer& transfer, BlockList& blocks);
    int write_directly(const Transfer& transfer, const BlockList& blocks, const char* buffer);
    int write_to_store(std::int64_t logical, const char* buffer, const FlatType& memory,
                       std::int64_t bytes);
    void note_stored(const Record& record);
    int read_blocks(std::int64_t logical, char* buffer, const FlatType& memory, std::int64_t bytes,
                    MPI_Count& bytes_read);
    int read_part(std::int64_t logical, char* to, std::int64_t bytes, MPI_Count& bytes_read);
    int read_range(std::uint64_t begin, std::uint64_t end, char* to,
                   std::vector<RemoteRead>& remote_reads);
    int read_file_system(std::uint64_t begin, std::uint64_t end, char* to) const;
    int fetch_remote(std::vector<RemoteRead>& remote_reads);
    std::uint64_t current_size(std::uint64_t at_least);
    void synchronize();
    int flush();
    int drain_all();
    bool were_writes_repeated();
    int report_error(int error) const;
    int conclude_sync(int& written, const Drain::SyncResult& result);
    void exchange_durable();
    void note_lost_ranges();
    int make_durable();
    bool have_conflicts();
    bool refresh_directory();
    int end_of_view(std::int64_t& end);
    int enter_bypass();
    int open_for_locks();
    int update_shared_file_pointer(std::int64_t amount, bool set, std::uint64_t& before);
    void synchronize_before_transfer(TransferStart start);
    void synchronize_after_transfer(bool collective);
    // Calls a function of the MPI library without the file's error handler: raise() calls it, and
    // some MPIs return success after they have called it.
    template <class Function>
    int without_handler(Function function) {
        const std::lock_guard guard(handler_lock_);
        MPI_Errhandler handler;
        PMPI_File_get_errhandler(mpi_file_, &handler);
        PMPI_File_set_errhandler(mpi_file_, MPI_ERRORS_RETURN);
        const int code = function();
        PMPI_File_set_errhandler(mpi_file_, handler);
        PMPI_Errhandler_free(&handler);
        return code;
    }

    Job* job_ = nullptr;
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    std::vector<int> world_ranks_;  // of the communicator's ranks
    std::vector<int> nodes_;        // of the communicator's ranks
    bool is_on_one_node_ = true;
    bool has_all_nodes_ = true;     // each node of the job has a rank of the communicator
    bool is_first_of_node_ = true;  // no lower rank of the communicator is on this node
    MPI_File mpi_file_ = MPI_FILE_NULL;
    std::mutex handler_lock_;      // while mpi_file_ has not the program's error handler
    SharedDescriptor descriptor_;  // for all access to the file system
    int lock_fd_ = -1;             // opened again for file locks
    int mode_ = 0;
    AggregatorHints aggregator_hints_;
    bool atomic_ = false, bypass_ = false;
    bool until_memory_ = false;  // sync and close wait for the background drain only
    std::string path_, name_;    // without symbolic links; as it was opened, from the root
    std::uint32_t slot_ = 0;
    std::uint32_t seen_repeats_ = 0;              // of FileSlot::repeats
    std::uint32_t seen_failed_syncs_ = 0;         // of FileSlot::failed_syncs
    std::atomic<std::uint64_t> direct_bytes_{0};  // written without the store
    SyncLedger ledger_;  // of the bytes that were written without the store
    // Some rank's ledger may have bytes that are lost or that a failed fsync can lose, so that
    // bytes that the store has, too, are noted.
    std::atomic<bool> may_lose_{false};
    // Size in the file system when it was last looked up, and the epoch then (comm_epoch.hpp).
    std::uint64_t file_size_ = 0, file_size_epoch_ = 0;
    std::int64_t displacement_ = 0, etype_ = 1;
    std::shared_ptr<const FlatType> view_;
    std::atomic<std::int64_t> position_{0};  // individual pointer, in etypes
    std::uint32_t shared_pointer_slot_ = 0;
};

}  // namespace assay::storage
