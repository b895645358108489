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
#include "storage/store/durability.hpp"
#include "storage/store/file_table.hpp"
#include "storage/store/helper_thread.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/write_queue.hpp"

namespace assay::storage {
namespace {

constexpr std::size_t small_batch = 32u << 20, large_batch = 1u << 30;  // bytes
constexpr std::size_t max_open_files = 32;  // files that one write_group() writes
constexpr unsigned heartbeat_ms = 500;      // longest time between two signs of life
constexpr long retry_ns = 500'000'000;      // least time between two retries of failed writes
// Attempts to take the drain's lock between two checks whether its owner has ended. A check makes
// system calls.
constexpr unsigned owner_check_period = 500;

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

// The right to call fsync of a file, until the end of the scope. At most one process of the node
// has it: a failed fsync must be noted before another one can succeed without the same data. If its
// owner was killed, the result of that fsync is not known (`was_interrupted`).
class SyncRight {
public:
    SyncRight(const Store& store, std::atomic<std::uint32_t>& owner) : owner_(owner) {
        const auto self = static_cast<std::uint32_t>(getpid());
        for (unsigned attempt = 1;; ++attempt, usleep(20)) {
            std::uint32_t other = 0;
            if (owner_.compare_exchange_strong(other, self, std::memory_order_acquire)) return;
            if (attempt % owner_check_period || other == self || !store.has_ended(other)) continue;
            was_interrupted = owner_.compare_exchange_strong(other, self);
            if (was_interrupted) return;
        }
    }
    ~SyncRight() { owner_.store(0, std::memory_order_release); }
    SyncRight(const SyncRight&) = delete;
    SyncRight& operator=(const SyncRight&) = delete;
    bool was_interrupted = false;

private:
    std::atomic<std::uint32_t>& owner_;
};

bool has_undrained_records(const Store& store) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        const auto& head = store.head(rank);
        if (head.drained.load(std::memory_order_acquire) <
            head.tail.load(std::memory_order_acquire))
            return true;
    }
    return false;
}

// Returns 0 or errno.
int call_fsync(int fd) {
    while (fsync(fd))
        if (errno != EINTR) return errno;
    return 0;
}

}  // namespace

Drain::Drain(Store& store, const FileHandles& handles, unsigned threads)
    : store_(store), handles_(handles), threads_(std::max(1u, threads)) {}

Drain::~Drain() { stop(); }

// ---- writing

// Writes the pieces of at most max_open_files files.
void Drain::write_group(const Piece* first, const Piece* last) {
    WriteQueue queue(store_);
    struct Target {
        std::uint32_t file;
        SharedDescriptor descriptor;
    };
    std::vector<Target> targets;
    while (first != last) {
        auto& file = store_.file(first->file);
        const Piece* const end = std::find_if(
            first, last, [&](const Piece& piece) { return piece.file != first->file; });
        int error = ESTALE;
        if (file.error.load()) {
            // They are written when the failed writes are repeated.
        } else if (auto descriptor = handles_.open_for_writing(first->file, error)) {
            file.writing = 1;
            targets.push_back({first->file, descriptor});
            queue.add(std::move(descriptor), first, static_cast<std::size_t>(end - first));
        } else {
            note_error(store_, file, error);
        }
        first = end;
    }
    queue.run(threads_);
    for (std::size_t k = 0; k < targets.size(); ++k) {
        note_modified(store_, targets[k].file, targets[k].descriptor->number());
        if (const int error = queue.error(k))
            note_error(store_, store_.file(targets[k].file), error);
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

Drain::Step Drain::step(std::size_t max_bytes, bool check_owner) {
    // A thread of low priority that found nothing to do under the lock would keep others from it.
    if (!has_undrained_records(store_)) return Step::idle;
    const DrainLock lock(store_, check_owner);
    if (!lock) return Step::busy;
    store_.note_alive();
    const Batch batch = next_batch(store_, max_bytes);
    if (!batch.takes_records) return Step::idle;
    for (const auto& [file, newest] : batch.newest) note_draining(store_.file(file), newest);
    write(batch.pieces);
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        store_.head(rank).drained_next.store(batch.end_record[rank]);
    commit_batch(store_);
    return Step::moved;
}

void Drain::finish(std::uint32_t rank, std::uint64_t end_record) {
    auto& drained = store_.head(rank).drained;
    for (unsigned attempt = 1; drained.load(std::memory_order_acquire) < end_record; ++attempt)
        if (step(large_batch, attempt % owner_check_period == 0) != Step::moved) usleep(20);
}

// ---- failures

template <class Action>
void Drain::with_lock(Action action) const {
    for (unsigned attempt = 1;; ++attempt, usleep(20))
        if (const DrainLock lock(store_, attempt % owner_check_period == 0); lock) return action();
}

void Drain::wait_for_running_writes() const {
    with_lock([] {});
}

// retry: writes the data again that are not durable. FileSlot::error stays set until all are
// written, so that recovery repeats them if this process is killed.
int Drain::repeat_writes(std::uint32_t file) {
    auto& slot = store_.file(file);
    const auto pieces = pieces_to_repeat(store_, file);
    int error = 0;
    if (pieces.empty()) {
    } else if (const auto descriptor = handles_.open_for_writing(file, error)) {
        slot.writing = 1;
        WriteQueue queue(store_);
        queue.add(descriptor, pieces.data(), pieces.size());
        queue.run(threads_);
        error = queue.error(0);
        note_modified(store_, file, descriptor->number());
        slot.repeats.fetch_add(1);
    }
    slot.error = static_cast<std::uint32_t>(error);
    store_.persist(&slot, 3 * cache_line);
    return error;
}

int Drain::retry(std::uint32_t file) {
    int error = 0;
    with_lock([&] { error = store_.file(file).error.load() ? repeat_writes(file) : 0; });
    return error;
}

void Drain::retry_all() {
    for (const auto file : store_.assigned_slots())
        if (store_.file(file).error.load() && !store_.file(file).deleted.load()) retry(file);
    store_.superblock().retries.fetch_add(1, std::memory_order_release);
}

// ---- fsync

// Data that were written without the store cannot be written again: then there is no error.
void Drain::note_failed_sync(std::uint32_t file, int error) const {
    store_.file(file).failed_syncs.fetch_add(1);
    if (!store_.file(file).error.load() && !pieces_to_repeat(store_, file).empty())
        note_error(store_, store_.file(file), error);
}

void Drain::note_interrupted_sync(std::uint32_t file) {
    std::atomic<std::uint32_t>& owner = store_.file(file).syncing;
    const std::uint32_t process = owner.load();
    if (process == 0 || !store_.has_ended(process)) return;
    const SyncRight right(store_, owner);
    if (right.was_interrupted) with_lock([&] { note_failed_sync(file, EIO); });
}

Drain::SyncResult Drain::sync(std::uint32_t file, int fd, const std::function<int()>& write_first) {
    auto& slot = store_.file(file);
    const SyncRight right(store_, slot.syncing);
    if (right.was_interrupted) with_lock([&] { note_failed_sync(file, EIO); });
    SyncResult result;
    if (write_first) result.fsync_error = write_first();
    std::uint64_t before = 0, promised = 0;
    with_lock([&] { promised = slot.drained_before.load(); });
    // What another process has failed to write meanwhile, or has written again, this fsync does not
    // cover. A write that has begun and records that are not drained hold `before` back.
    for (bool is_covered = false; !result.error() && !is_covered;) {
        if (before && step(small_batch) != Step::moved) usleep(20);
        bool has_written_all = false;
        std::uint32_t repeats = 0;
        with_lock([&] {
            before = storage::written_before(store_, file);
            has_written_all = !slot.error.load();
            repeats = slot.repeats.load();
        });
        result.fsync_error = call_fsync(fd);
        if (result.fsync_error) break;
        with_lock([&] {
            note_synced(store_, slot, before);
            // What is not settled may have to be written again only since this fsync began.
            if (has_written_all && !slot.error.load() && slot.repeats.load() == repeats)
                slot.repeats_unsettled = 0;
            result.write_error = static_cast<int>(slot.error.load());
            is_covered = slot.durable.load() >= promised;
        });
    }
    if (result.fsync_error) with_lock([&] { note_failed_sync(file, result.fsync_error); });
    return result;
}

bool Drain::repeat_unsettled() {
    bool is_complete = true;
    for (const auto k : store_.assigned_slots()) {
        auto& file = store_.file(k);
        if (!file.shared.load() || file.deleted.load()) continue;
        with_lock([&] {
            file.repeats_unsettled = 1;
            note_error(store_, file, EIO);
        });
        is_complete &= file.evicted_newest.load() <= file.settled.load();
    }
    return is_complete;
}

void Drain::sync_all() {
    for (const auto file : store_.assigned_slots()) {
        const auto& slot = store_.file(file);
        int error = 0;
        if (slot.deleted.load() || slot.error.load() || !needs_sync(slot)) continue;
        if (const auto descriptor = handles_.open_for_writing(file, error))
            sync(file, descriptor->number());
        else with_lock([&] { note_failed_sync(file, error); });
    }
}

// ---- the background thread

void Drain::start(unsigned lag_ms, bool defers) {
    lag_ms_ = lag_ms;
    defers_ = defers;
    stop_ = false;
    running_ = start_helper_thread(thread_, drain_thread, this);
    syncs_ = start_helper_thread(sync_thread_, sync_thread, this);
}

void Drain::stop() {
    stop_ = true;
    if (running_) {
        store_.request_drain();
        pthread_join(thread_, nullptr);
    }
    if (syncs_) {
        store_.request_sync();
        pthread_join(sync_thread_, nullptr);
    }
    running_ = syncs_ = false;
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
    std::uint64_t drain_at = store_.now() + lag_ns;
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
    }
}

// A thread of its own, so that data are drained while an fsync runs. Ranks, also of other nodes,
// wait for what it does. So it has their priority: where they poll on all cores, a lower one would
// not run for seconds.
void* Drain::sync_thread(void* self) {
    static_cast<Drain*>(self)->run_syncs();
    return nullptr;
}

void Drain::run_syncs() {
    auto& requests = store_.superblock().sync_requests;
    std::uint32_t seen_requests = requests.load();
    for (std::uint64_t retry_at = store_.now() + retry_ns; !stop_.load();) {
        const timespec wait{0, retry_ns};
        syscall(SYS_futex, &requests, FUTEX_WAIT, seen_requests, &wait, nullptr, 0);
        const std::uint32_t requests_now = requests.load();
        const bool is_requested = requests_now != seen_requests;
        seen_requests = requests_now;
        if (stop_.load() || (defers_ && background_drain_runs(store_))) continue;
        if (store_.now() >= retry_at) {
            retry_all();
            retry_at = store_.now() + retry_ns;
        }
        if (is_requested) sync_all();
    }
}

}  // namespace assay::storage
