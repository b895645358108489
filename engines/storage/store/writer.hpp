// The writer of a rank: it reserves space for data in the rank's rings and publishes the records.
//
// A thread prefaults the data ring 128 MiB ahead of the writer, so that neither the start nor the
// first lap of the ring waits for page faults. The same thread maps the pages of the other ranks'
// rings, which this rank may read. When the ring is full, the oldest data that are durable in their
// file are evicted; when there are none, the writer waits for the drain and for fsync. On a device
// that turns out to be full the ring becomes smaller; each rank has the least ring from the start.
//
// Drained data stay in the ring for readers. When the machine or the control group runs short of
// memory, the thread evicts them and gives their pages back, but those of a window: when others
// have taken the memory, the writer waits until the window is free again and goes on there.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

class Drain;

class Writer {
public:
    Writer(Store& store, std::uint32_t rank);
    ~Writer();
    Writer(const Writer&) = delete;
    Writer& operator=(const Writer&) = delete;

    // Takes the memory for the least ring, before any rank takes more. Returns ENOSPC if there is
    // none: then the store is of no use.
    int claim();
    // Prefaults this rank's ring for `seconds` at most; the thread prefaults the rest.
    void prefault(double seconds);
    // Maps the pages that the other ranks have prefaulted, for `seconds` at most; the thread maps
    // the rest.
    void map_other_rings(double seconds);

    // The most bytes and records of one reserve(); the caller splits a larger write.
    std::size_t max_bytes() const;
    std::size_t max_records() const { return store_.layout().record_slots / 4; }

    // Reserves space for a write and returns it; `ring_offset` is where it begins in the ring.
    // Waits for the file system as long as that takes. Null when the oldest data cannot be written
    // to their file, or when more than max_bytes() are asked for and do not fit (see error()).
    char* reserve(std::size_t bytes, std::size_t records, std::uint64_t& ring_offset);
    // Announces that the reserved space is about to be filled: the sequence of this write will be
    // later than now.
    void begin_write();
    // Publishes the records of the filled space. Records with sequence 0 get the present time.
    // Their `ring_offset` must be relative to the reserved one.
    void publish(Record* records, std::size_t count, std::uint64_t ring_offset, std::size_t bytes);

    // Evicts all data that the file system has, except those for which other nodes must be asked,
    // and gives the pages of what was evicted before the last call back to the system. Does nothing
    // during a write, or if the store is not in memory.
    void release_drained();

    // The drain of this process. The writer uses it for data that the leader's drain cannot write,
    // when the leader has ended, and when its threads free no space for a second.
    void set_drain(Drain* drain) { drain_ = drain; }

    // Called before an eviction of the records [first, end), which are durable. Returns the number
    // before which they may be evicted, at most `end`; `first` means failure. The guard may publish
    // up to reserved_records() records without data.
    using EvictionGuard = std::function<std::uint64_t(std::uint64_t first, std::uint64_t end)>;
    void set_eviction_guard(EvictionGuard guard) { eviction_guard_ = std::move(guard); }
    std::size_t reserved_records() const {
        return eviction_guard_ ? store_.layout().record_slots / 8 : 0;
    }
    // Free places in the record ring, the reserved ones included.
    std::size_t free_records() const {
        return store_.layout().record_slots - (head_.tail.load() - head_.first_record.load());
    }
    // Publishes records without data.
    void publish(Record* records, std::size_t count) {
        publish(records, count, next_ring_offset_, 0);
    }

    // errno of the last reserve() that returned null.
    int error() const { return error_; }
    std::uint32_t rank() const { return rank_; }

    // Until the end of the scope nothing leaves the ring for want of memory, so the data in it can
    // be read without a copy. The thread that writes may make one, also in the eviction guard.
    class Hold {
    public:
        explicit Hold(Writer& writer);
        ~Hold();
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

    private:
        Writer& writer_;
        bool takes_ring_;  // else reserve() has it
    };

private:
    // Which operation has the ring: a write (from reserve() to publish()) and release_drained() may
    // move its ends, a Hold only keeps release_drained() away.
    enum class Use : std::uint32_t { none, write, hold, release };

    void take_ring(Use use);
    void release_if_short();
    void release_pages();
    template <class Action>
    void for_each_part(std::uint64_t from, std::uint64_t end, Action action) const;
    bool populate_released_pages(std::uint64_t end);
    std::uint64_t end_of_window_after(std::uint64_t offset) const;
    std::uint64_t window_before(std::uint64_t offset) const;
    bool return_to_window();
    char* reserve_space(std::size_t bytes, std::size_t records, std::uint64_t& ring_offset);
    bool evict();  // evicts the oldest drained record; false: none may be evicted
    void evict_first(const Record& oldest, std::uint64_t position);
    bool wait_for_space();
    void request_sync_in_time();
    bool prefault_until(std::uint64_t end, std::uint64_t step);
    bool map_next_step();
    bool needs_prefault() const;
    void wait_for_demand(std::uint64_t ns);
    void wake_prefault_thread();
    static void* prefault_thread(void* self);

    Store& store_;
    RankHead& head_;
    std::uint32_t rank_;
    std::atomic<std::uint64_t> next_ring_offset_{0};
    std::atomic<Use> use_{Use::none};
    // Ring offsets: between them the pages may have been released. Those of the window before the
    // first are there.
    std::uint64_t unpopulated_from_ = 0, unpopulated_end_ = 0;
    std::uint64_t evicted_before_last_release_ = 0;  // RankHead::first_byte at that time
    std::string root_;                               // prefix of /proc and /sys, for tests
    std::uint64_t memory_checked_ns_ = 0;
    std::uint64_t last_release_counters_ = 0;  // sum of three counters that only grow
    bool reserving_ = false;
    bool last_wait_failed_ = false;  // the last wait for space ended without space
    Drain* drain_ = nullptr;
    EvictionGuard eviction_guard_;
    std::uint64_t evictable_before_ = 0;                   // a record number
    std::uint64_t sync_at_byte_ = 0, sync_at_record_ = 0;  // when an fsync is requested next
    std::atomic<std::uint64_t> prefault_target_{0};
    std::atomic<std::uint32_t> prefault_sleeps_{0};  // a futex; 1: the thread waits
    std::atomic<bool> stop_{false};
    std::atomic<bool> device_full_{false};
    std::vector<std::uint64_t>
        mapped_bytes_;  // by rank: bytes of its ring that this process has mapped
    std::atomic<bool> maps_other_rings_{false};
    pthread_mutex_t prefault_lock_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread_{};
    bool running_ = false;
    int error_ = 0;
};

}  // namespace assay::storage
