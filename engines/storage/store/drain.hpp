// Writes the store's data into the file system. A reader of the file cannot tell the order from
// that of the writes.
//
// A batch takes each rank's records up to the horizon: no record older than that can still appear
// (a rank announces a write that has no sequence yet). Within a batch the newest write of a byte
// wins. Blocks of several ranks that are adjacent in the file become one write. One process of the
// node drains at a time: the leader's background thread, or a process that waits for the drain.
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

    enum class Step { idle, busy, moved, failed };
    // Drains a batch of about `max_bytes` (a record is never split). busy: another process drains.
    Step step(std::size_t max_bytes);

    // Drains until the rank's records before `end_record` are in the file system. False: they
    // cannot be written, see the superblock's drain_failed.
    bool finish(std::uint32_t rank, std::uint64_t end_record);

    // Drains in a background thread at the lowest priority, every `lag_ms` or on request.
    void start(unsigned lag_ms);
    void stop();

private:
    struct Piece {
        std::uint64_t file;  // slot and generation
        std::uint64_t begin, end;
        const char* data;
        std::uint64_t sequence;
        std::uint32_t rank;
    };
    struct Batch {
        std::vector<Piece> pieces;
        std::vector<std::uint64_t> end_record;  // by rank: drained up to here afterwards
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
    std::map<std::uint64_t, int> files_;
    unsigned lag_ms_ = 0;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
