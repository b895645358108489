// From the store into the file system, in an order that a reader of the file could not tell from
// the writes' own.
//
// A batch takes of every rank the records that are older than a moment before which none can appear
// any more (each rank says when it has begun a write that has no sequence yet). Within a batch the
// newest write of a byte wins; blocks of several ranks that lie side by side in the file go out as
// one write. One process of the node drains at a time: the leader's background thread, or whoever
// waits for it and has nothing better to do.
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
    // `threads` write at a time.
    Drain(Store& store, unsigned threads);
    ~Drain();
    Drain(const Drain&) = delete;
    Drain& operator=(const Drain&) = delete;

    enum class Step { idle, busy, moved, failed };
    // Drains a batch of at most so many bytes (a record is never split). busy: another process is
    // at it.
    Step step(std::size_t most_bytes);

    // Until the rank's records before `upto` are in the file system; false and the store's
    // drain_failed: they cannot.
    bool finish(std::uint32_t rank, std::uint64_t upto);

    // In the background, at the lowest priority, from when a write is `lag_ms` old.
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
        std::vector<std::uint64_t> upto;  // by rank: records that are done with it
        std::size_t bytes = 0;
    };
    struct Output;

    Batch plan(std::size_t most_bytes) const;
    void add(Batch& batch, const Record& record, std::uint32_t rank) const;
    static void resolve(std::vector<Piece>& pieces);
    int write(const std::vector<Piece>& pieces);
    int descriptor(std::uint64_t file);
    static void* background(void* self);
    static void* writing(void* output);

    Store& store_;
    unsigned threads_;
    std::map<std::uint64_t, int> files_;
    unsigned lag_ms_ = 0;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
