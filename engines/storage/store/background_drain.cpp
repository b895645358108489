// The main loop of the background drain, a process that writes a store's data into their files.
// While the job runs, it opens the files that the ranks hold open. After the job, it writes what is
// left, calls fsync and removes the store.
#include "storage/store/background_drain.hpp"

#include <linux/futex.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "storage/store/durability.hpp"
#include "storage/store/other_jobs.hpp"
#include "storage/store/progress.hpp"

namespace assay::storage {
namespace {

constexpr unsigned background_poll_us = 50'000;
constexpr std::uint64_t check_period_ns = 50'000'000;  // between two checks for complete files
constexpr std::uint64_t background_retry_ns = 1'000'000'000;
constexpr std::size_t batch_bytes = 32u << 20;  // a batch of the drain

std::int64_t coarse_realtime_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

// Clears the marks of unfinished work of ranks that were killed.
void clear_state_of_ranks(const Store& store) {
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank) {
        auto& head = store.head(rank);
        head.pending = head.resolving = 0;
        head.unresolved = 0;
    }
    for (const auto k : store.assigned_slots()) store.file(k).users = 0;
    auto& superblock = store.superblock();
    superblock.drain_lock = superblock.table_lock = 0;
}

}  // namespace

BackgroundDrain::BackgroundDrain(Store& store, const BackgroundSettings& settings)
    : store_(store),
      settings_(settings),
      handles_(store, FileHandles::background_rank),
      drain_(store, handles_, settings.threads) {}

bool BackgroundDrain::run() {
    auto& superblock = store_.superblock();
    superblock.background = static_cast<std::uint32_t>(getpid());
    link_store(store_);
    superblock.background_state = BackgroundState::running;
    drain_.start(settings_.lag_ms);
    std::uint64_t next_check = 0;
    for (;;) {
        if (ranks_have_ended()) {
            // is_last_user() gives up the shared lock for a moment, and recovery may take it.
            drain_.stop();
            if (is_last_user()) return finish();
            drain_.start(settings_.lag_ms);
        }
        const std::uint32_t seen_requests = superblock.background_requests.load();
        open_files_of_ranks();
        if (store_.now() >= next_check) {
            complete_files();
            next_check = store_.now() + check_period_ns;
        }
        const timespec wait{0, background_poll_us * 1000L};
        syscall(SYS_futex, &superblock.background_requests, FUTEX_WAIT, seen_requests, &wait,
                nullptr, 0);
    }
}

// ---- files of ranks

bool BackgroundDrain::is_open_in_a_rank(std::uint32_t slot) const {
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        if (store_.descriptor_of(rank, slot).load(std::memory_order_acquire)) return true;
    return false;
}

void BackgroundDrain::open_files_of_ranks() {
    for (const auto slot : store_.assigned_slots())
        if (!store_.background_descriptor_of(slot).load() && !store_.file(slot).deleted.load() &&
            !store_.file(slot).background_open_failed.load() && is_open_in_a_rank(slot))
            open_file_of_ranks(slot);
}

// Another file may get the slot while this one is opened, so the identity is compared again.
void BackgroundDrain::open_file_of_ranks(std::uint32_t slot) {
    auto& file = store_.file(slot);
    int error = 0;
    const auto descriptor = handles_.open_for_writing(slot, error);
    FileStatus status;
    TableLock lock(store_);
    if (descriptor && read_status(descriptor->number(), status) == 0 &&
        is_same_file(file, status) && is_open_in_a_rank(slot))
        handles_.hold(slot, descriptor);
    else if (!descriptor) file.background_open_failed = 1;
}

void BackgroundDrain::complete_files() {
    for (const auto slot : handles_.held_slots())
        if (const auto descriptor = handles_.held(slot);
            descriptor && !store_.file(slot).users.load())
            complete(slot, descriptor);
}

// Calls fsync of a file that no rank has open, once all its data are written, and releases it.
void BackgroundDrain::complete(std::uint32_t slot, const SharedDescriptor& descriptor) {
    auto& file = store_.file(slot);
    FileStatus status;
    if (!file.deleted.load() && read_status(descriptor->number(), status) == 0 && !status.links)
        file.deleted = 1;  // the file has no name left, so its data are not needed
    if (!file.deleted.load()) {
        if (!is_written(store_, slot)) return;
        if (needs_sync(file) && drain_.sync(slot, descriptor->number()).error()) return;
    }
    release(slot, descriptor);
}

// Records the file's state, as a close does. If another program has modified the file meanwhile,
// the store's data of it are outdated and are not served.
void BackgroundDrain::record_closed_state(FileSlot& file, const FileStatus& status) {
    if (status.mtime_ns != file.known_mtime_ns.load()) {
        file.valid_from = file.durable.load();
        file.end = 0;
    }
    file.mtime_ns = status.mtime_ns;
    file.ctime_ns = status.ctime_ns;
    file.size = status.size;
}

// Closes the descriptor of a file that is completely written. Returns false if a rank has opened
// the file again, or if its modification time is still in the present tick of the kernel's clock: a
// later change by another program would have the same time.
bool BackgroundDrain::release(std::uint32_t slot, const SharedDescriptor& descriptor) {
    auto& file = store_.file(slot);
    TableLock lock(store_);
    if (file.users.load()) return false;
    if (!file.deleted.load()) {
        FileStatus status;
        if (!is_durable(store_, slot) || read_status(descriptor->number(), status) ||
            coarse_realtime_ns() <= status.mtime_ns)
            return false;
        // A close that waited for the file system has recorded the state itself.
        if (file.size.load() < 0) record_closed_state(file, status);
        file.acknowledged = 0;
        store_.persist(&file, 3 * cache_line);
    }
    handles_.release(slot, descriptor);
    return true;
}

// ---- after the job

bool BackgroundDrain::ranks_have_ended() const {
    const Phase phase = store_.superblock().phase.load();
    if (phase != Phase::active) return true;
    for (std::uint32_t rank = 0; rank < store_.ranks(); ++rank)
        if (!store_.has_ended(store_.head(rank).pid.load())) return false;
    return true;
}

// Whether no rank has the store open: every process of a job holds the shared lock of the store.
bool BackgroundDrain::is_last_user() const {
    if (flock(store_.descriptor(), LOCK_EX | LOCK_NB) == 0) return true;
    while (flock(store_.descriptor(), LOCK_SH) && errno == EINTR) {
    }
    return false;
}

// Opens the files that ranks had open when they were killed.
void BackgroundDrain::open_remaining_files() {
    for (const auto slot : store_.assigned_slots()) {
        const auto& file = store_.file(slot);
        if (handles_.held(slot) || file.deleted.load() || is_durable(store_, slot)) continue;
        int error = 0;
        if (auto descriptor = handles_.open_for_writing(slot, error))
            handles_.hold(slot, std::move(descriptor));
    }
}

bool BackgroundDrain::finish() {
    auto& superblock = store_.superblock();
    struct stat info{};
    const Phase phase = superblock.phase.load();
    if (phase == Phase::clean || phase == Phase::kept || fstat(store_.descriptor(), &info))
        return true;
    if (S_ISREG(info.st_mode) && !info.st_nlink) return true;  // the store was removed
    clear_state_of_ranks(store_);
    store_.set_phase(Phase::detached);
    open_remaining_files();
    std::uint64_t deadline = store_.now() + settings_.retry_s * std::uint64_t{1'000'000'000};
    for (std::uint64_t next_retry = 0;; usleep(background_poll_us)) {
        while (drain_.step(batch_bytes) == Drain::Step::moved) complete_files();
        if (store_.now() >= next_retry) {
            drain_.retry_all();
            next_retry = store_.now() + background_retry_ns;
        }
        complete_files();
        if (may_remove(store_)) break;
        if (store_.now() > deadline) {
            for (const auto slot : handles_.held_slots())
                update_path(store_, slot, handles_.held(slot)->number());
            superblock.background_state = BackgroundState::gave_up;
            superblock.background = 0;
            return false;
        }
    }
    store_.finish();
    remove_dead_links();
    return true;
}

}  // namespace assay::storage
