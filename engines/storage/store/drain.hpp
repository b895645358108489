// Writes the store's data into the file system. After each batch the files have the contents that
// the same writes, made in the order of their sequences, would have left.
//
// A batch takes the records of all ranks in the order of their sequences, up to the horizon: every
// record older than that is published, since a rank announces a write before it takes a sequence.
// Within a batch the newest write of a byte wins. Blocks of several ranks that are adjacent in the
// file become one write. One process of the node drains at a time: the leader's background thread,
// or a process that waits for the drain.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

class Drain {
public:
    // `threads` write in parallel.
    Drain(Store& store, unsigned threads);
    ~Drain();
    Drain(const Drain&) = delete;
    Drain& operator=(const Drain&) = delete;

    enum class Step {
        idle,   // no record can be drained now
        busy,   // another process drains
        moved,  // a batch is in the file system
        failed  // a write failed, now or before: see the superblock's drain_failed
    };
    // Drains a batch of about `max_bytes`; a record is never split.
    Step step(std::size_t max_bytes);

    // Drains until the rank's records before `end_record` are in the file system. False: they
    // cannot be written, see the superblock's drain_failed.
    bool finish(std::uint32_t rank, std::uint64_t end_record);

    // Drains in a background thread at the lowest priority, every `lag_ms` or on request.
    void start(unsigned lag_ms);
    void stop();

private:
    // A range of a file that one record writes.
    struct Piece {
        std::uint64_t file;        // slot and generation
        std::uint64_t begin, end;  // offsets in the file
        const char* data;
        std::uint64_t sequence;
        std::uint32_t rank;
    };
    struct Batch {
        std::vector<Piece> pieces;
        std::vector<std::uint64_t> end_record;  // by rank: the batch takes the records before this
        std::size_t bytes = 0;
    };
    struct WriteQueue;

    Batch plan(std::size_t max_bytes) const;
    void add(Batch& batch, const Record& record, std::uint32_t rank) const;
    static void keep_newest(std::vector<Piece>& pieces);
    int write(const std::vector<Piece>& pieces);
    int descriptor(std::uint64_t file);
    static void* drain_thread(void* self);
    static void* write_thread(void* queue);

    Store& store_;
    unsigned threads_;
    std::map<std::uint64_t, int> files_;  // descriptor by Piece::file; -1: the file is gone
    unsigned lag_ms_ = 0;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
