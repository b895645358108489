// A rank's writer: reserves space in the rank's rings, publishes records, evicts drained data when
// the rings are full, and prefaults pages in a thread. Rings and counters are described in
// layout.hpp.
#include "storage/store/writer.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "machine/available_memory.hpp"
#include "storage/store/drain.hpp"
#include "storage/store/durability.hpp"
#include "storage/store/helper_thread.hpp"
#include "storage/store/persist.hpp"

namespace assay::storage {
namespace {

constexpr std::uint64_t prefault_step = 8u << 20;  // bytes at a time
constexpr std::uint64_t least_prefault_step = 64u << 10;
constexpr std::uint64_t prefault_ahead = 128u << 20;  // bytes ahead of the writer
constexpr std::uint64_t least_ring = 1u << 20;        // bytes that a rank has from the start on
constexpr std::uint64_t max_write = 4u << 20;         // bytes of one reserve()
// The prefault thread's pauses grow from the shortest to the longest while it has nothing to do.
constexpr std::uint64_t shortest_pause_ns = 1'000'000, longest_pause_ns = 50'000'000;
constexpr std::size_t drain_batch = 32u << 20;  // bytes
// Memory is short when less than 1/4 of the store's size is available.
constexpr std::uint64_t low_memory_divisor = 4;
constexpr std::uint64_t memory_check_period_ns = 250'000'000;  // between checks of the memory
constexpr unsigned leader_check_period = 200;  // polls between checks of the leader, which make
                                               // system calls
constexpr std::uint64_t drain_poll_ns = 50'000, retry_poll_ns = 10'000'000;
// How long a writer waits for the leader's threads before it drains and calls fsync itself. They
// may not have started, or they may be slower.
constexpr std::uint64_t help_after_ns = 1'000'000'000;
// How long a writer waits for a file that cannot be written; the drain retries it twice a second.
constexpr std::uint64_t error_wait_limit_ns = 3'000'000'000;

void sleep_ns(std::uint64_t ns) {
    const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&time, nullptr);
}

}  // namespace

Writer::Writer(Store& store, std::uint32_t rank)
    : store_(store), head_(store.head(rank)), rank_(rank) {
    mapped_bytes_.resize(store.ranks());
    if (const auto tail = head_.tail.load()) {  // the store has data of an earlier job
        const Record& last = store.record(rank, tail - 1);
        const bool data = static_cast<RecordKind>(last.kind) == RecordKind::data;
        next_ring_offset_ = last.ring_offset + (data ? last.length * last.count : 0);
    }
    if (const char* root = std::getenv("ASSAY_ROOT")) root_ = root;
    running_ = start_helper_thread(thread_, prefault_thread, this);
}

Writer::~Writer() {
    stop_ = true;
    wake_prefault_thread();
    if (running_) pthread_join(thread_, nullptr);
}

int Writer::claim() {
    if (!head_.tail.load())
        return prefault_until(std::min(least_ring, head_.ring_bytes.load()), least_ring) ? 0
                                                                                         : ENOSPC;
    const std::uint64_t from = next_ring_offset_.load(), end = end_of_window_after(from);
    unpopulated_from_ = end;  // the earlier job may have released pages
    evicted_before_last_release_ = head_.first_byte.load();
    unpopulated_end_ = evicted_before_last_release_ + head_.ring_bytes.load();
    int error = 0;
    for_each_part(from, end, [&](std::size_t begin, std::size_t bytes) {
        if (!error) error = store_.populate(begin, bytes);
    });
    return error;
}

void Writer::prefault(double seconds) {
    const std::uint64_t until = store_.now() + static_cast<std::uint64_t>(seconds * 1e9);
    while (store_.now() < until && head_.prefaulted.load() < head_.ring_bytes.load() &&
           prefault_until(head_.prefaulted.load() + 1, prefault_step)) {
    }
}

void Writer::map_other_rings(double seconds) {
    const std::uint64_t until = store_.now() + static_cast<std::uint64_t>(seconds * 1e9);
    while (store_.now() < until && map_next_step()) {
    }
    maps_other_rings_ = true;
}

// Maps the next prefaulted pages of another rank's ring. Returns false if all are mapped.
bool Writer::map_next_step() {
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
        const std::uint64_t prefaulted = store_.head(rank).prefaulted.load();
        if (rank == rank_ || mapped_bytes_[rank] >= prefaulted) continue;
        const std::uint64_t bytes = std::min(prefault_step, prefaulted - mapped_bytes_[rank]);
        store_.map_pages(store_.layout().data_offset(rank) + mapped_bytes_[rank], bytes);
        mapped_bytes_[rank] += bytes;
        return true;
    }
    return false;
}

// Before the first write nothing is prefaulted, because it is not known whether the rank writes.
bool Writer::needs_prefault() const {
    const std::uint64_t target = prefault_target_.load();
    return target && !device_full_.load() &&
           head_.prefaulted.load() < std::min(target + prefault_ahead, head_.ring_bytes.load());
}

void* Writer::prefault_thread(void* self) {
    auto& writer = *static_cast<Writer*>(self);
    std::uint64_t pause_ns = shortest_pause_ns;
    while (!writer.stop_.load()) {
        const bool moved =
            writer.needs_prefault()
                ? writer.prefault_until(writer.head_.prefaulted.load() + 1, prefault_step)
                : writer.maps_other_rings_.load() && writer.map_next_step();
        if (!moved) writer.release_if_short();
        if (!moved) writer.wait_for_demand(pause_ns);
        pause_ns = moved ? shortest_pause_ns : std::min(2 * pause_ns, longest_pause_ns);
    }
    return nullptr;
}

void Writer::wait_for_demand(std::uint64_t ns) {
    const timespec time{0, static_cast<long>(ns)};
    prefault_sleeps_ = 1;
    if (!stop_.load() && !needs_prefault())
        syscall(SYS_futex, &prefault_sleeps_, FUTEX_WAIT_PRIVATE, 1, &time, nullptr, 0);
    prefault_sleeps_ = 0;
}

void Writer::wake_prefault_thread() {
    if (prefault_sleeps_.load(std::memory_order_relaxed) && prefault_sleeps_.exchange(0))
        syscall(SYS_futex, &prefault_sleeps_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool Writer::prefault_until(std::uint64_t end, std::uint64_t step) {
    pthread_mutex_lock(&prefault_lock_);
    while (head_.prefaulted.load() < end && !device_full_.load()) {
        const std::uint64_t from = head_.prefaulted.load(),
                            bytes = std::min(step, head_.ring_bytes.load() - from);
        if (!bytes) break;
        const std::size_t begin = store_.layout().data_offset(rank_) + from;
        if (!store_.populate(begin, bytes)) {
            head_.prefaulted = from + bytes;
            continue;
        }
        store_.release(begin, bytes);  // what there was of it
        step /= 2;
        if (step >= least_prefault_step) continue;
        // The device is full, so the ring ends here. The writer is still in the first lap of
        // the ring, so every offset keeps its place.
        device_full_ = true;
        if (from) head_.ring_bytes = from;
        store_.persist(&head_.ring_bytes, sizeof head_.ring_bytes);
    }
    pthread_mutex_unlock(&prefault_lock_);
    return head_.prefaulted.load() >= end;
}

std::size_t Writer::max_bytes() const {
    return std::clamp<std::size_t>(head_.ring_bytes.load() / 4, page, max_write);
}

// evict: the oldest record leaves the rings.
bool Writer::evict() {
    const std::uint64_t first = head_.first_record.load(std::memory_order_relaxed);
    const std::uint64_t drained = head_.drained.load(std::memory_order_acquire);
    if (first == drained) return false;
    const Record& oldest = store_.record(rank_, first);
    if (!may_evict(store_, oldest)) return false;
    if (eviction_guard_ && first >= evictable_before_) {
        // The guard's answer holds for what is on the medium now: later its bytes may be superseded
        // by others that are not.
        std::uint64_t end = first + 1;
        while (end < drained && may_evict(store_, store_.record(rank_, end))) ++end;
        evictable_before_ = eviction_guard_(first, end);
        if (first >= evictable_before_) {
            error_ = EIO;
            return false;
        }
    }
    evict_first(oldest, first);
    return true;
}

void Writer::evict_first(const Record& oldest, std::uint64_t position) {
    if (static_cast<RecordKind>(oldest.kind) == RecordKind::data) {
        auto& slot = store_.file(oldest.file);
        // The sequence up to which data are durable must survive a power failure before they go.
        store_.persist(&slot, 2 * cache_line);
        auto& newest = slot.evicted_newest;
        std::uint64_t before = newest.load(std::memory_order_relaxed);
        while (slot.generation.load() == oldest.generation && before < oldest.sequence &&
               !newest.compare_exchange_weak(before, oldest.sequence)) {
        }
        head_.first_byte.store(oldest.ring_offset + oldest.length * oldest.count,
                               std::memory_order_release);
    }
    head_.first_record.store(position + 1, std::memory_order_release);
    // Readers check first_byte after their copy.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    store_.persist(&head_.first_record, cache_line);
}

// Waits until the oldest data can be evicted: for the drain, for fsync, and for the retry of a file
// that cannot be written or whose fsyncs fail. Returns false and sets error_ if they still cannot.
// After a wait that has failed, the next one tries only once.
bool Writer::wait_for_space() {
    const std::uint64_t first = head_.first_record.load();
    const std::uint64_t begin = store_.now();
    const std::uint64_t deadline = begin + (last_wait_failed_ ? 0 : error_wait_limit_ns);
    unsigned polls = 0;
    bool has_retried = false;
    std::uint32_t failed_syncs = 0;
    for (std::uint64_t poll_ns = drain_poll_ns;; sleep_ns(poll_ns)) {
        store_.request_drain();
        if (head_.drained.load() > first) {
            const Record& oldest = store_.record(rank_, first);
            if (may_evict(store_, oldest)) {
                last_wait_failed_ = false;
                return true;
            }
            const auto& file = store_.file(oldest.file);
            const auto error = file.error.load();
            // A write that is repeated may succeed, and the next fsync fail again.
            const auto syncs = file.failed_syncs.load();
            const bool sync_fails = has_retried && syncs != failed_syncs;
            failed_syncs = syncs;
            has_retried |= error != 0;
            const bool write_fails = error && (!drain_ || drain_->retry(oldest.file));
            if ((write_fails || sync_fails) && store_.now() > deadline) {
                last_wait_failed_ = true;
                error_ = error ? static_cast<int>(error) : EIO;
                return false;
            }
            if (error && !write_fails) continue;
            if (!error && !file.syncing.load()) store_.request_sync();
            poll_ns = error ? retry_poll_ns : drain_poll_ns;
        }
        if (drain_ && ++polls % leader_check_period == 0 &&
            (store_.now() > begin + help_after_ns || store_.has_ended(store_.head(0).pid.load()))) {
            while (drain_->step(drain_batch) == Drain::Step::moved) {
            }
            drain_->sync_all();
        }
    }
}

// Waits for release_drained(). `use_` may still be Use::write from a write of this thread that was
// not published.
void Writer::take_ring(Use use) {
    for (;;) {
        auto current = use_.load();
        if (current == Use::release) sleep_ns(drain_poll_ns);
        else if (use_.compare_exchange_strong(current, use)) return;
    }
}

Writer::Hold::Hold(Writer& writer) : writer_(writer), takes_ring_(!writer.reserving_) {
    if (takes_ring_) writer.take_ring(Use::hold);
}
Writer::Hold::~Hold() {
    if (takes_ring_) writer_.use_.store(Use::none, std::memory_order_release);
}

char* Writer::reserve(std::size_t bytes, std::size_t records, std::uint64_t& ring_offset) {
    error_ = 0;
    take_ring(Use::write);
    reserving_ = true;
    char* space = reserve_space(bytes, records, ring_offset);
    // Released pages may be in use elsewhere now.
    if (space && !populate_released_pages(ring_offset + bytes)) {
        space = return_to_window() ? reserve_space(bytes, records, ring_offset) : nullptr;
        if (space && !populate_released_pages(ring_offset + bytes)) {
            error_ = ENOSPC;
            space = nullptr;
        }
    }
    reserving_ = false;
    if (!space) use_ = Use::none;
    return space;
}

char* Writer::reserve_space(std::size_t bytes, std::size_t records, std::uint64_t& ring_offset) {
    for (;;) {
        const std::uint64_t ring = head_.ring_bytes.load();
        std::uint64_t from = next_ring_offset_;
        if (from % ring + bytes > ring) from += ring - from % ring;
        const bool space = from + bytes - head_.first_byte.load(std::memory_order_relaxed) <= ring;
        const bool slots = head_.tail.load(std::memory_order_relaxed) + records -
                               head_.first_record.load(std::memory_order_relaxed) <=
                           store_.layout().record_slots - reserved_records();
        if (space && slots) {
            prefault_target_.store(from + bytes + 1, std::memory_order_relaxed);
            if (needs_prefault()) wake_prefault_thread();
            const std::uint64_t prefaulted = head_.prefaulted.load(std::memory_order_relaxed);
            if (prefaulted < ring && from + bytes > prefaulted &&
                !prefault_until(std::min(from + bytes, ring), prefault_step)) {
                if (head_.ring_bytes.load() != ring) continue;  // the ring has become smaller
                if (device_full_.load()) {
                    error_ = ENOSPC;
                    return nullptr;
                }
            }
            next_ring_offset_ = from;
            ring_offset = from;
            return store_.data(rank_, from);
        }
        if (bytes > ring) {
            error_ = ENOSPC;
            return nullptr;
        }
        // An empty ring can start at any offset.
        if (!evict()) {
            if (error_) return nullptr;
            if (head_.first_record.load() == head_.tail.load()) head_.first_byte.store(from);
            else if (!wait_for_space()) return nullptr;
        }
    }
}

void Writer::begin_write() { head_.pending.store(store_.now(), std::memory_order_seq_cst); }

// Asks for an fsync for each quarter of the ring, so that the oldest data are durable before the
// ring is full. The first half of the ring needs none.
void Writer::request_sync_in_time() {
    const std::uint64_t ring = head_.ring_bytes.load(std::memory_order_relaxed);
    const std::uint64_t records = head_.tail.load(std::memory_order_relaxed),
                        slots = store_.layout().record_slots;
    const std::uint64_t bytes = next_ring_offset_.load(std::memory_order_relaxed);
    if (bytes < sync_at_byte_ && records < sync_at_record_) return;
    const bool is_first = !sync_at_byte_;
    sync_at_byte_ = bytes + (is_first ? ring / 2 : ring / 4);
    sync_at_record_ = records + (is_first ? slots / 2 : slots / 4);
    if (is_first) return;
    store_.request_drain();
    store_.request_sync();
}

void Writer::publish(Record* records, std::size_t count, std::uint64_t ring_offset,
                     std::size_t bytes) {
    const bool durable = store_.persistent();
    if (durable && bytes) {
        write_back(store_.data(rank_, ring_offset), bytes);
        persist_fence();
    }
    const std::uint64_t sequence = store_.now(), tail = head_.tail.load(std::memory_order_relaxed);
    for (std::size_t k = 0; k < count; ++k) {
        if (!records[k].sequence) records[k].sequence = sequence;
        records[k].ring_offset += ring_offset;
        records[k].checksum = checksum_of(store_, rank_, records[k]);
        Record& slot = store_.record(rank_, tail + k);
        slot = records[k];
        if (durable) write_back(&slot, sizeof slot);
    }
    next_ring_offset_ = ring_offset + bytes;
    if (durable) persist_fence();
    head_.tail.store(tail + count, std::memory_order_release);
    if (durable) {
        write_back(&head_.tail, sizeof head_.tail);
        persist_fence();
    }
    head_.pending.store(0, std::memory_order_release);
    request_sync_in_time();
    // Within reserve(), the eviction guard publishes tombstones: then the write still needs the
    // ring. The conflict resolver publishes without reserve(): then `use_` is not Use::write.
    auto use = Use::write;
    if (!reserving_) use_.compare_exchange_strong(use, Use::none);
}

// ---- memory given back to the system

void Writer::release_if_short() {
    const std::uint64_t now = store_.now();
    const std::uint64_t counters =
        head_.tail.load() + head_.drained.load() + head_.prefaulted.load();
    if (!store_.in_memory() || counters == last_release_counters_ ||
        now - memory_checked_ns_ < memory_check_period_ns)
        return;
    memory_checked_ns_ = now;
    if (available_memory(root_.c_str()) >= store_.layout().bytes() / low_memory_divisor) return;
    store_.request_sync();  // what is not durable stays
    const std::uint64_t released_before = evicted_before_last_release_;
    release_drained();
    if (released_before == head_.first_byte.load() &&
        head_.first_record.load() == head_.drained.load())
        last_release_counters_ = counters;
}

void Writer::release_drained() {
    auto use = Use::none;
    if (!store_.in_memory() || !use_.compare_exchange_strong(use, Use::release)) return;
    // Evicts only what the guard has allowed already: a call of the guard may wait for other nodes
    // and for locks that a write holds.
    while (!eviction_guard_ || head_.first_record.load() < evictable_before_)
        if (!evict()) break;
    if (head_.first_record.load() == head_.tail.load())
        head_.first_byte.store(next_ring_offset_.load());
    release_pages();
    use_.store(Use::none, std::memory_order_release);
}

// Calls `action` with the parts of the ring, as offsets in the store, that [from, end) covers.
template <class Action>
void Writer::for_each_part(std::uint64_t from, std::uint64_t end, Action action) const {
    const std::uint64_t ring = head_.ring_bytes.load();
    while (from < end) {
        const std::uint64_t bytes = std::min(end - from, ring - from % ring);
        action(store_.layout().data_offset(rank_) + from % ring, bytes);
        from += bytes;
    }
}

// A window is a part of the ring, in one piece, that holds any write.

// Where the first window after a ring offset ends.
std::uint64_t Writer::end_of_window_after(std::uint64_t offset) const {
    const std::uint64_t ring = head_.ring_bytes.load(), in_lap = offset % ring;
    return offset + max_bytes() + (in_lap + max_bytes() > ring ? ring - in_lap : 0);
}

// Where the last window before a ring offset begins.
std::uint64_t Writer::window_before(std::uint64_t offset) const {
    const std::uint64_t in_lap = offset % head_.ring_bytes.load();
    return offset - max_bytes() - (in_lap < max_bytes() ? in_lap : 0);
}

// Gives back the pages of the ring's free part but a window, so that the writer can go on when
// others take them. RankHead::first_byte tells readers that its bytes are evicted. A reader that
// has not seen that yet may be copying: what was evicted since the last call stays until the next,
// because a page that is gone, on a full tmpfs, would end the reader.
void Writer::release_pages() {
    const std::uint64_t ring = head_.ring_bytes.load(), prefaulted = head_.prefaulted.load();
    const std::uint64_t evicted_before =
        std::exchange(evicted_before_last_release_, head_.first_byte.load());
    const bool some_unpopulated = unpopulated_from_ < unpopulated_end_;
    std::uint64_t from = end_of_window_after(next_ring_offset_.load());
    if (some_unpopulated) from = std::min(from, unpopulated_from_);
    if (prefaulted < ring) from = std::min(from, prefaulted);  // the ring's first lap
    if (from < max_bytes()) return;
    const std::uint64_t end = std::min(evicted_before, window_before(from)) + ring;
    for_each_part(from, end,
                  [this](std::size_t begin, std::size_t bytes) { store_.release(begin, bytes); });
    unpopulated_from_ = from;
    unpopulated_end_ = some_unpopulated ? std::max(unpopulated_end_, end) : end;
}

// Allocates the released pages up to the ring offset `end`, and 8 MiB more if there is so much.
// Returns false if there is no space.
bool Writer::populate_released_pages(std::uint64_t end) {
    if (unpopulated_from_ >= std::min(end, unpopulated_end_)) return true;
    const std::uint64_t prefaulted = head_.prefaulted.load();
    const bool in_first_lap = prefaulted < head_.ring_bytes.load();
    for (const std::uint64_t more : {prefault_step, std::uint64_t{0}}) {
        std::uint64_t populate_end = std::min(end + more, unpopulated_end_);
        if (in_first_lap) populate_end = std::min(populate_end, prefaulted);
        int error = 0;
        for_each_part(unpopulated_from_, populate_end, [&](std::size_t begin, std::size_t bytes) {
            if (!error) error = store_.populate(begin, bytes);
        });
        if (error) continue;
        unpopulated_from_ = populate_end;
        return true;
    }
    return false;
}

// Waits until all data are evicted, and goes on in the window before the released pages. Returns
// false and sets error_ if they cannot be.
bool Writer::return_to_window() {
    while (head_.first_record.load() != head_.tail.load())
        if (!evict() && (error_ || !wait_for_space())) return false;
    const std::uint64_t ring = head_.ring_bytes.load();
    next_ring_offset_ = window_before(unpopulated_from_) + ring;
    unpopulated_from_ += ring;
    unpopulated_end_ += ring;
    head_.first_byte.store(next_ring_offset_.load());
    return true;
}

}  // namespace assay::storage
