// Writes the store's data into the file system. After each batch the files have the contents that
// the same writes, made in the order of their sequences, would have left.
//
// One process of the node drains at a time: the leader's background thread, or a process that waits
// for the drain. A file that cannot be written gets an error (FileSlot::error) and its records stay
// in the rings; other files go on. retry() writes them again.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
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
        moved  // a batch was handed to the file system
    };
    // Drains a batch of about `max_bytes`. `check_owner`: takes over from a process that has
    // ended.
    Step step(std::size_t max_bytes, bool check_owner = true);

    // Drains until the rank's records before `end_record` were handed to the file system. Whether
    // their files took them is in FileSlot::error.
    void finish(std::uint32_t rank, std::uint64_t end_record);

    // Writes what failed writes have left out of a file. Returns 0 or errno.
    int retry(std::uint32_t file);

    // The file's records from the sequence `oldest` on are not in the file system because of
    // `error`; they stay in the rings.
    void note_write_error(std::uint32_t file, std::uint64_t oldest, int error) const;

    // fsync of a file with what is drained of it. Returns 0 or errno; then its data count as not
    // written.
    int sync(std::uint32_t file, int fd);

    // Drains in a background thread at the lowest priority, every `lag_ms` or on request. Files
    // with an error are retried every second. `defers`: not while the store's background drain
    // runs.
    void start(unsigned lag_ms, bool defers = false);
    void stop();

private:
    void write(const std::vector<Piece>& pieces);
    void write_group(const Piece* first, const Piece* last);
    std::uint64_t written_before(std::uint32_t file) const;
    void note_failed_sync(std::uint32_t file, int error) const;
    int sync_written(std::uint32_t file, int fd, std::uint64_t before);
    template <class Action>
    void with_lock(Action action) const;
    void sync_files(const std::vector<Piece>& pieces);
    int write_failed_pieces(std::uint32_t file);
    void retry_all();
    void run();
    static void* drain_thread(void* self);

    Store& store_;
    const FileHandles& handles_;
    unsigned threads_;
    unsigned lag_ms_ = 0;
    bool defers_ = false;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
