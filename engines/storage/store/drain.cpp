// The drain: writes batches of the store's data into their files, repeats failed writes and calls
// fsync. A `sequence` is the time of a write on the job's clock and orders all writes of the job
// (layout.hpp).
#include "storage/store/drain.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "storage/store/background.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/helper_thread.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/write_queue.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t small_batch = 32u << 20, large_batch = 1u << 30;  // bytes
constexpr std::size_t max_open_files = 32;  // files that one write_group() writes
constexpr unsigned heartbeat_ms = 500;      // longest time between two signs of life
constexpr std::uint64_t retry_ns = 1'000'000'000;
// Attempts to take the drain's lock between two checks whether its owner has ended. A check makes
// system calls.
constexpr unsigned owner_check_period = 500;

void pause_us(long us) {
    const timespec pause{0, us * 1000};
    nanosleep(&pause, nullptr);
}

// The drain's lock, until the end of the scope. It is taken over from a process that has ended.
class DrainLock {
public:
    explicit DrainLock(const Store& store, bool check_owner = true)
        : lock_(store.superblock().drain_lock), held_(try_lock(store, lock_, check_owner)) {
        if (held_) complete_commit(store);
    }
    ~DrainLock() {
        if (held_) lock_.store(0, std::memory_order_release);
    }
    DrainLock(const DrainLock&) = delete;
    DrainLock& operator=(const DrainLock&) = delete;
    explicit operator bool() const { return held_; }

private:
    std::atomic<std::uint32_t>& lock_;
    bool held_;
};

// Prevents evictions from the rings until the end of the scope. See Writer::evict().
class EvictionStop {
public:
    explicit EvictionStop(const Store& store) : store_(store) {
        store_.superblock().eviction_stopped.store(1, std::memory_order_seq_cst);
        for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank) {
            const auto& head = store_.head(rank);
            while (head.evicting.load(std::memory_order_seq_cst) &&
                   !store_.has_ended(head.pid.load()))
                sched_yield();
        }
    }
    ~EvictionStop() { store_.superblock().eviction_stopped = 0; }
    EvictionStop(const EvictionStop&) = delete;
    EvictionStop& operator=(const EvictionStop&) = delete;

private:
    const Store& store_;
};

}  // namespace

Drain::Drain(Store& store, const FileHandles& handles, unsigned threads)
    : store_(store), handles_(handles), threads_(std::max(1u, threads)) {}

Drain::~Drain() { stop(); }

// ---- writing

// The caller moves RankHead::drained afterwards: then data without an error may be evicted from the
// rings, so the error must be set first.
void Drain::note_write_error(std::uint32_t file, std::uint64_t oldest, int error) const {
    auto& slot = store_.file(file);
    oldest = std::max(oldest, slot.settled.load());
    if (!slot.error.load() || oldest < slot.failed_from.load()) slot.failed_from = oldest;
    store_.superblock().write_failed = 1;
    slot.error.store(static_cast<std::uint32_t>(error), std::memory_order_seq_cst);
    store_.persist(&slot, 2 * cache_line);
}

// Writes the pieces of at most max_open_files files.
void Drain::write_group(const Piece* first, const Piece* last) {
    WriteQueue queue(store_);
    struct Target {
        std::uint32_t file;
        std::uint64_t oldest;
        SharedDescriptor descriptor;
    };
    std::vector<Target> targets;
    while (first != last) {
        const std::uint32_t file = first->file;
        const Piece* end = first;
        std::uint64_t oldest = ~0ull;
        for (; end != last && end->file == file; ++end) oldest = std::min(oldest, end->sequence);
        int error = ESTALE;
        if (auto& slot = store_.file(file); slot.error.load()) {
            note_write_error(file, oldest, static_cast<int>(slot.error.load()));
        } else if (auto descriptor = handles_.open_for_writing(file, error)) {
            slot.dirty = slot.writing = 1;
            targets.push_back({file, oldest, descriptor});
            queue.add(std::move(descriptor), first, static_cast<std::size_t>(end - first));
        } else {
            note_write_error(file, oldest, error);
        }
        first = end;
    }
    queue.run(threads_);
    for (std::size_t k = 0; k < targets.size(); ++k) {
        note_modified(store_, targets[k].file, targets[k].descriptor->number());
        if (const int error = queue.error(k))
            note_write_error(targets[k].file, targets[k].oldest, error);
    }
}

// Writes pieces, which are sorted by file, in groups of a few files, because each file needs a
// descriptor.
void Drain::write(const std::vector<Piece>& pieces) {
    const Piece* const end = pieces.data() + pieces.size();
    for (const Piece* first = pieces.data(); first != end;) {
        const Piece* last = first;
        for (std::size_t files = 0; last != end && files < max_open_files; ++files)
            for (const auto file = last->file; last != end && last->file == file;) ++last;
        write_group(first, last);
        first = last;
    }
}

// Calls fsync of the files of these pieces: data on persistent memory may leave the rings only when
// they are durable in the file system.
void Drain::sync_files(const std::vector<Piece>& pieces) {
    for (std::size_t k = 0; k < pieces.size(); ++k) {
        if (k && pieces[k].file == pieces[k - 1].file) continue;
        int error = 0;
        const auto file = pieces[k].file;
        if (const auto descriptor = handles_.open_for_writing(file, error))
            if (const int failed = sync_written(file, descriptor->number(), written_before(file)))
                note_failed_sync(file, failed);
    }
}

Drain::Step Drain::step(std::size_t max_bytes, bool check_owner) {
    const DrainLock lock(store_, check_owner);
    if (!lock) return Step::busy;
    store_.note_alive();
    const Batch batch = next_batch(store_, max_bytes);
    if (!batch.takes_records) return Step::idle;
    write(batch.pieces);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        store_.head(rank).drained_next.store(batch.end_record[rank]);
    commit_batch(store_);
    if (store_.persistent()) sync_files(batch.pieces);
    return Step::moved;
}

void Drain::finish(std::uint32_t rank, std::uint64_t end_record) {
    auto& drained = store_.head(rank).drained;
    for (unsigned attempt = 1; drained.load(std::memory_order_acquire) < end_record; ++attempt)
        if (step(large_batch, attempt % owner_check_period == 0) != Step::moved) pause_us(20);
}

// ---- failures

template <class Action>
void Drain::with_lock(Action action) const {
    for (unsigned attempt = 1;; ++attempt, pause_us(20))
        if (const DrainLock lock(store_, attempt % owner_check_period == 0); lock) return action();
}

void Drain::wait_for_running_writes() const {
    with_lock([] {});
}

// Repeats the failed writes of a file. FileSlot::error stays set until all are written, so that
// recovery repeats them if this process is killed.
int Drain::write_failed_pieces(std::uint32_t file) {
    auto& slot = store_.file(file);
    const EvictionStop stop(store_);
    const auto pieces = failed_pieces(store_, file);
    if (pieces.empty() && !store_.persistent()) {
        slot.error = 0;
        return 0;
    }
    int error = 0;
    if (const auto descriptor = handles_.open_for_writing(file, error)) {
        slot.dirty = slot.writing = 1;
        WriteQueue queue(store_);
        queue.add(descriptor, pieces.data(), pieces.size());
        queue.run(threads_);
        error = queue.error(0);
        note_modified(store_, file, descriptor->number());
        // On persistent memory the data leave the rings only when they are durable.
        if (!error && store_.persistent())
            error = sync_written(file, descriptor->number(), drained_before(store_));
    }
    slot.error = static_cast<std::uint32_t>(error);
    slot.repeats.fetch_add(1);
    store_.persist(&slot, 3 * cache_line);
    return error;
}

int Drain::retry(std::uint32_t file) {
    int error = 0;
    with_lock([&] { error = store_.file(file).error.load() ? write_failed_pieces(file) : 0; });
    return error;
}

void Drain::retry_all() {
    for (std::uint32_t file = 0; file < file_slots && store_.file(file).generation.load(); ++file)
        if (store_.file(file).error.load() && !store_.file(file).deleted.load())
            if (const DrainLock lock(store_); lock && store_.file(file).error.load())
                write_failed_pieces(file);
}

// A sequence: all older data of the file were written to the file system.
std::uint64_t Drain::written_before(std::uint32_t file) const {
    const auto& slot = store_.file(file);
    const std::uint64_t drained = drained_before(store_);
    return slot.error.load() ? std::min(drained, slot.failed_from.load()) : drained;
}

// After a failed fsync the kernel marks the pages as clean, although they may not be on the medium.
// So all data of the file that are not known to be durable count as not written.
void Drain::note_failed_sync(std::uint32_t file, int error) const {
    auto& slot = store_.file(file);
    const EvictionStop stop(store_);
    const std::uint64_t evicted = slot.evicted_newest.load();  // 0: none
    if (evicted && evicted >= slot.durable.load()) slot.lost = 1;
    note_write_error(file, std::max(slot.durable.load(), evicted + 1), error);
    // Data that were written without the store cannot be written again: then the error is cleared.
    if (failed_pieces(store_, file).empty()) slot.error = 0;
    else slot.dirty = 1;
}

// fsync. On success the data with sequences below `before` are durable. Returns 0 or errno.
int Drain::sync_written(std::uint32_t file, int fd, std::uint64_t before) {
    auto& slot = store_.file(file);
    slot.dirty.store(0, std::memory_order_seq_cst);
    while (fsync(fd))
        if (errno != EINTR) return errno;
    std::uint64_t durable = slot.durable.load();
    while (durable < before && !slot.durable.compare_exchange_weak(durable, before)) {
    }
    store_.persist(&slot, 2 * cache_line);
    return slot.lost.load() ? EIO : 0;
}

int Drain::sync(std::uint32_t file, int fd) {
    std::uint64_t before = 0;
    with_lock([&] { before = written_before(file); });
    const int error = sync_written(file, fd, before);
    if (error && !store_.file(file).lost.load()) with_lock([&] { note_failed_sync(file, error); });
    return error;
}

// ---- the background thread

void Drain::start(unsigned lag_ms, bool defers) {
    lag_ms_ = lag_ms;
    defers_ = defers;
    stop_ = false;
    running_ = start_helper_thread(thread_, drain_thread, this);
}

void Drain::stop() {
    if (!running_) return;
    stop_ = true;
    store_.request_drain();
    pthread_join(thread_, nullptr);
    running_ = false;
}

void* Drain::drain_thread(void* self) {
    static_cast<Drain*>(self)->run();
    return nullptr;
}

void Drain::run() {
    auto& requests = store_.superblock().drain_requests;
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
    const std::uint64_t lag_ns = lag_ms_ * std::uint64_t{1'000'000};
    std::uint32_t seen_requests = requests.load();
    std::uint64_t drain_at = store_.now() + lag_ns, retry_at = store_.now() + retry_ns;
    while (!stop_.load()) {
        const unsigned wait_ms = std::min(lag_ms_, heartbeat_ms);
        const timespec wait{wait_ms / 1000, static_cast<long>(wait_ms % 1000) * 1'000'000};
        syscall(SYS_futex, &requests, FUTEX_WAIT, seen_requests, &wait, nullptr, 0);
        store_.note_alive();
        const std::uint32_t requests_now = requests.load();
        if (requests_now == seen_requests && store_.now() < drain_at) continue;
        seen_requests = requests_now;
        if (defers_ && background_drain_runs(store_)) continue;
        while (!stop_.load() && step(small_batch) == Step::moved) {
        }
        drain_at = store_.now() + lag_ns;
        if (store_.now() >= retry_at) {
            retry_all();
            retry_at = store_.now() + retry_ns;
        }
    }
}

}  // namespace assay::storage
