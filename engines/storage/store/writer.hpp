// A rank's own end of the store: space for data, and records that publish them.
//
// Space is made real memory a stretch ahead of its use, by a thread of its own, so that neither the
// start nor the first lap of the ring waits for page faults; the same thread enters the others'
// rings into the page tables, to be read. When the ring is full, the oldest data that the file
// system already has give way; when there are none, the writer waits for the drain. A device that
// turns out to be full makes the ring smaller.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

class Writer {
public:
    Writer(Store& store, std::uint32_t rank);
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    // Makes memory real for `seconds` at most, then leaves it to the thread.
    void warm(double seconds);
    // The same for the page tables' entries of what the others have made real; from then on the
    // thread sees to it.
    void map_others(double seconds);

    // The most bytes and records that one write may have; more is written in parts.
    std::size_t most_bytes() const;
    std::size_t most_records() const { return store_.shape().record_slots / 4; }

    // Room for a write, from `place` on in the ring; null when the drain has failed or stands still
    // (see error()).
    char* reserve(std::size_t bytes, std::size_t records, std::uint64_t& place);
    // What is reserved is about to be filled: older sequences than this moment's will not appear
    // any more.
    void begin();
    // It is filled: the records become visible, with one sequence (where they have none yet). Their
    // `place` is relative to the reserved one.
    void publish(Record* records, std::size_t count, std::uint64_t place, std::size_t bytes);

    // What gives way is asked for here first: records before the answer may go (of those before
    // `drained`, which the file system has); an answer no further than `first` is a failure. It may
    // publish up to `spare_records()` records without data.
    using MayGo = std::function<std::uint64_t(std::uint64_t first, std::uint64_t drained)>;
    void before_giving_way(MayGo ask) { may_go_ = std::move(ask); }
    std::size_t spare_records() const { return may_go_ ? store_.shape().record_slots / 8 : 0; }
    // Records of no bytes, as they are.
    void publish(Record* records, std::size_t count) { publish(records, count, next_, 0); }

    int error() const { return error_; }
    std::uint32_t rank() const { return rank_; }

private:
    bool give_way();  // the oldest drained record goes; false: none
    bool wait_for_drain();
    bool make_real(std::uint64_t upto);
    bool map_another();
    static void* warmer(void* self);

    Store& store_;
    RankHead& head_;
    std::uint32_t rank_;
    std::uint64_t next_ = 0;  // the data ring's next position
    MayGo may_go_;
    std::uint64_t cleared_ = 0;  // records before may go
    bool refused_ = false;       // what should have gone may not: nothing more is taken
    std::atomic<std::uint64_t> wanted_{0};
    std::atomic<bool> stop_{false};
    std::atomic<bool> full_{false};
    std::vector<std::uint64_t> mapped_;  // by rank: bytes of its ring in this process's page tables
    std::atomic<bool> maps_{false};
    pthread_mutex_t growing_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread_{};
    bool running_ = false;
    int error_ = 0;
};

}  // namespace assay::storage
