// The drain: writes the store's data into the file system. After each batch the files have the same
// contents as if the ranks' writes had been made directly, in the order of their sequences.
//
// One process of the node drains at a time, under a lock: the background thread of the leader
// (local rank 0), or a process that needs its data in the file system. A file that cannot be
// written gets an error (FileSlot::error); other files go on. retry() writes its data again. What
// may leave the rings is in durability.hpp.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "storage/store/batch.hpp"
#include "storage/store/file_handles.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

class Drain {
public:
    // `threads` write in parallel.
    Drain(Store& store, const FileHandles& handles, unsigned threads);
    ~Drain();
    Drain(const Drain&) = delete;
    Drain& operator=(const Drain&) = delete;

    enum class Step {
        idle,  // no record can be drained now
        busy,  // another process drains
        moved  // a batch was written
    };
    // Drains a batch of about `max_bytes`. `check_owner`: takes the lock from a process that has
    // ended.
    Step step(std::size_t max_bytes, bool check_owner = true);

    // Drains until the rank's records before number `end_record` were drained. FileSlot::error
    // tells whether their files could be written.
    void finish(std::uint32_t rank, std::uint64_t end_record);

    // Repeats the failed writes of a file. Returns 0 or errno.
    int retry(std::uint32_t file);
    // The same for all files.
    void retry_all();

    // Waits until the writes end that any process of the node has begun.
    void wait_for_running_writes() const;

    // Calls fsync of a file. After an error the data that are not durable count as not written.
    // `write_first`: writes further bytes into the file, which belong to this fsync; returns 0 or
    // errno.
    struct SyncResult {
        int fsync_error = 0;  // errno of fsync or of write_first
        int write_error = 0;  // errno with which the store's data could not be written before it
        int error() const { return fsync_error ? fsync_error : write_error; }
    };
    SyncResult sync(std::uint32_t file, int fd, const std::function<int()>& write_first = {});
    // Call it before retry(): if the process that called fsync of the file was killed, nobody knows
    // what that fsync has reached, and the data that the store has count as not written.
    void note_interrupted_sync(std::uint32_t file);
    // Call it at the end of the job if the conflicts between nodes could not be resolved, and each
    // node has published its superseded bytes: what is not settled is written again, of all files
    // that several nodes share. Returns false if some of it cannot be, because newer data have left
    // the store.
    bool repeat_unsettled();
    // Calls fsync of all files that have data which are drained and not durable.
    void sync_all();

    // Drains in a background thread at the lowest priority, every `lag_ms` or on request. Another
    // thread retries files with an error twice a second, and calls fsync on request, so that data
    // may leave the rings. `defers`: the threads do nothing while the store's background drain
    // (background_drain.hpp) runs.
    void start(unsigned lag_ms, bool defers = false);
    void stop();

private:
    void write(const std::vector<Piece>& pieces);
    void write_group(const Piece* first, const Piece* last);
    void note_failed_sync(std::uint32_t file, int error) const;
    template <class Action>
    void with_lock(Action action) const;
    int repeat_writes(std::uint32_t file);
    void run();
    static void* drain_thread(void* self);
    void run_syncs();
    static void* sync_thread(void* self);

    Store& store_;
    const FileHandles& handles_;
    unsigned threads_;
    unsigned lag_ms_ = 0;
    bool defers_ = false;
    std::atomic<bool> stop_{false};
    pthread_t thread_{}, sync_thread_{};
    bool running_ = false, syncs_ = false;
};

}  // namespace assay::storage
