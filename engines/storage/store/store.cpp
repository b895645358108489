// Attaches to stores, maps, formats and removes them. A store is a file (usually in tmpfs) or a dax
// device that all ranks of a node map; layout.hpp describes its contents, create.cpp makes them.
#include "storage/store/store.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "storage/store/persist.hpp"
#include "storage/store/superblock.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

namespace assay::storage {
namespace {

// Sequences above this are not from a job's clock, so their records are damaged.
constexpr std::uint64_t latest_sequence = ~0ull / 2;

std::uint64_t pid_namespace() {
    struct stat info{};
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

constexpr const char* another_users_store =
    " is owned by another user; fix: run the command as that user";

// Whether a job has chosen the name, in a folder of stores.
bool has_name_of_store(const std::string& path) {
    return path.compare(path.rfind('/') + 1, std::strlen(store_prefix), store_prefix) == 0;
}

// Whether the process is a zombie with no other threads. A launcher may leave a killed rank as a
// zombie until the job ends. /proc/PID/stat has the state of the main thread; other threads may
// still be in a system call.
bool is_zombie(std::uint32_t pid) {
    char path[64], text[512]{};
    std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE* file = std::fopen(path, "r");
    if (!file) return errno == ENOENT;
    const bool was_read = std::fgets(text, sizeof text, file) != nullptr;
    std::fclose(file);
    const char* fields = std::strrchr(text, ')');
    if (!was_read || !fields || std::strncmp(fields, ") Z", 3) != 0) return false;
    // proc(5): the state is field 3, the number of threads is field 20.
    for (int k = 3; k <= 20 && fields; ++k) fields = std::strchr(fields + 1, ' ');
    return fields && std::strtol(fields, nullptr, 10) <= 1;
}

// The clock with this offset. Unsigned, because a damaged store may have any offset, and a signed
// sum could overflow.
std::uint64_t time_with(std::int64_t offset) {
    timespec steady{};
    clock_gettime(CLOCK_MONOTONIC, &steady);
    return static_cast<std::uint64_t>(steady.tv_sec * 1'000'000'000 + steady.tv_nsec) +
           static_cast<std::uint64_t>(offset);
}

}  // namespace

bool lies_in_file_table_and_ring(const Store& store, std::uint32_t rank, const Record& record) {
    if (record.file >= file_slots || record.sequence > latest_sequence) return false;
    const auto kind = static_cast<RecordKind>(record.kind);
    if (kind != RecordKind::data && kind != RecordKind::superseded) return true;
    const auto ring = store.head(rank).ring_bytes.load();
    std::uint64_t bytes = 0;
    // The bytes of a superseded record are bytes of data in the ring, so there are no more.
    return ring && ring <= store.layout().ring_bytes && record.length &&
           !__builtin_mul_overflow(record.length, std::uint64_t{record.count}, &bytes) &&
           bytes <= ring &&
           (kind == RecordKind::superseded || record.ring_offset % ring + bytes <= ring);
}

std::uint64_t checksum_of(const Store& store, std::uint32_t rank, const Record& record) {
    constexpr std::size_t fields = offsetof(Record, checksum);
    const bool has_data = static_cast<RecordKind>(record.kind) == RecordKind::data;
    if (!store.persistent() || !has_data) return XXH3_64bits(&record, fields);
    const std::uint64_t data_hash =
        XXH3_64bits(store.data(rank, record.ring_offset), record.length * record.count);
    return XXH3_64bits_withSeed(&record, fields, data_hash);
}

bool Store::map(std::size_t bytes, Failure& failure) {
    // With MAP_SYNC (a dax device, or a file system with dax) data that are flushed from the cache
    // are on the medium.
    void* map =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd_, 0);
    persistent_ = map != MAP_FAILED;
    if (map == MAP_FAILED) map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (map == MAP_FAILED) {
        failure.message = path_ + " cannot be mapped: " + errno_text();
        return false;
    }
    map_ = static_cast<char*>(map);
    mapped_bytes_ = bytes;
    madvise(map_, bytes, MADV_HUGEPAGE);
    madvise(map_, bytes, MADV_DONTDUMP);
    return true;
}

// Makes the store empty. `is_zero`: the store is a new file, which reads as zero; touching all of
// it would allocate it, on a file system with dax with a commit of its journal a page. A crash
// meanwhile leaves the phase `formatting`, which means an empty store. The heads of the ranks are
// persisted before the phase can become `active`.
void Store::format(const std::string& job, const std::string& keep, bool is_zero) {
    auto& block = superblock();
    set_phase(Phase::formatting);
    block.magic = store_magic;
    block.version = store_version;
    block.ranks = layout_.ranks;
    block.bytes = mapped_bytes_;
    block.record_slots = layout_.record_slots;
    block.ring_bytes = layout_.ring_bytes;
    block.created = std::time(nullptr);
    block.persistent = persistent_;
    std::snprintf(block.keep, sizeof block.keep, "%s", keep.c_str());
    block.previous_job[0] = 0;
    block.previous_nodes = 0;
    begin_job(job);
    if (!is_zero)
        for (std::uint32_t k = 0; k < file_slots; ++k) {
            file(k).generation = 0, file(k).users = 0;
            background_descriptor_of(k) = 0;
            if (persistent_) write_back(&file(k), cache_line);
        }
    for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank) {
        auto& rank_head = head(rank);
        rank_head.tail = rank_head.pending = rank_head.drained = rank_head.first_record =
            rank_head.first_byte = rank_head.resolving = 0;
        rank_head.pid = 0;
        rank_head.unresolved = 0;
        rank_head.ring_bytes = layout_.ring_bytes;
        rank_head.prefaulted = backing_ == Backing::device ? layout_.ring_bytes : 0;
        if (!is_zero)
            for (std::uint32_t k = 0; k < file_slots; ++k) descriptor_of(rank, k) = 0;
        persist(&rank_head, sizeof rank_head);
    }
    persist(&block, superblock_bytes);
}

// Sets the superblock's fields that belong to a job and its processes.
void Store::begin_job(const std::string& job) {
    auto& block = superblock();
    std::snprintf(block.job, sizeof block.job, "%s", job.c_str());
    gethostname(block.host, sizeof block.host - 1);
    std::snprintf(block.boot, sizeof block.boot, "%s", boot_id().c_str());
    block.torn = 0;
    block.nodes = 1;
    block.pid_namespace = pid_namespace();
    timespec realtime{}, steady{};
    clock_gettime(CLOCK_REALTIME, &realtime);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    block.clock_offset =
        (realtime.tv_sec - steady.tv_sec) * 1'000'000'000 + realtime.tv_nsec - steady.tv_nsec;
    block.drain_requests = block.table_lock = block.drain_lock = block.sync_requests =
        block.batch_committed = block.background = block.background_requests = 0;
    block.background_state = BackgroundState::none;
    note_alive();
    for (std::size_t k = 0; k < shared_pointer_slots; ++k)
        block.shared_pointers[k] = 0, block.shared_pointer_used[k] = 0;
}

// Whether all records have their checksums. The counters of the rings must be those of the end of
// the job that kept the store (finish()).
bool Store::is_intact() const {
    for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank) {
        const std::uint64_t first = head(rank).first_record.load(), tail = head(rank).tail.load();
        if (first > tail || tail - first > layout_.record_slots) return false;
        for (std::uint64_t k = first; k < tail; ++k)
            if (const Record& stored = record(rank, k);
                !lies_in_file_table_and_ring(*this, rank, stored) ||
                stored.checksum != checksum_of(*this, rank, stored))
                return false;
    }
    return true;
}

// Takes over a kept store for a new job. The phase stays `kept` until the job sets another one, so
// that nothing is lost if the job does not start.
bool Store::take_over(const std::string& job, Failure& failure) {
    auto& block = superblock();
    std::uint64_t latest = 0;
    for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank) {
        auto& rank_head = head(rank);
        const std::uint64_t tail = rank_head.tail.load();
        if (rank_head.drained.load() != tail || rank_head.first_record.load() > tail ||
            tail - rank_head.first_record.load() > layout_.record_slots) {
            failure.message = path_ + " is damaged; fix: assay io drop " + block.keep;
            return false;
        }
        for (std::uint64_t k = rank_head.first_record.load(); k < tail; ++k)
            latest = std::max(latest, record(rank, k).sequence);
        rank_head.pending = rank_head.resolving = 0;
        rank_head.pid = 0;
        rank_head.unresolved = 0;
        for (std::uint32_t k = 0; k < file_slots; ++k) descriptor_of(rank, k) = 0;
    }
    for (const auto k : assigned_slots()) {
        file(k).users = 0;
        file(k).acknowledged = file(k).background_open_failed = 0;
    }
    for (std::uint32_t k = 0; k < file_slots; ++k) background_descriptor_of(k) = 0;
    std::memcpy(block.previous_job, block.job, sizeof block.job);
    block.previous_nodes = block.nodes;
    begin_job(job);
    advance_clock_past_data(latest);
    taken_over_ = true;
    return true;
}

void erase_store(const std::string& path, Failure& failure) {
    const int fd = open_store_file(path);
    struct stat info{};
    if (fd < 0 || fstat(fd, &info)) failure.message = path + " cannot be opened: " + errno_text();
    else if (is_of_another_user(fd)) failure.message = path + another_users_store;
    else if (flock(fd, LOCK_EX | LOCK_NB)) failure.message = path + " is in use by a job";
    else if (!read_superblock(fd).is_store &&
             !(has_name_of_store(path) && is_incomplete(fd) && is_zero(fd)))
        failure.message = path + " is not a store of Assay";
    else if (S_ISREG(info.st_mode)) {
        if (const int error = unlink_file(fd, path))
            failure.message = path + " cannot be removed: " + std::strerror(error);
    } else if (void* map = mmap(nullptr, huge_page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
               map == MAP_FAILED) {
        failure.message = path + " cannot be mapped: " + errno_text();
    } else {
        static_cast<Superblock*>(map)->magic = 0;
        write_back(map, cache_line);
        munmap(map, huge_page);
    }
    if (fd >= 0) close(fd);
}

std::unique_ptr<Store> Store::attach(const std::string& path, bool shared_lock, Failure& failure) {
    std::unique_ptr<Store> store(new Store);
    store->path_ = path;
    store->fd_ = open_store_file(path);
    if (store->fd_ < 0) {
        failure.message = errno == ENODEV ? path + " is not a store of Assay"
                                          : path + " cannot be opened: " + errno_text();
        return nullptr;
    }
    if (is_of_another_user(store->fd_)) {
        failure.message = path + another_users_store;
        return nullptr;
    }
    store->backing_ = backing_of(store->fd_);
    const SuperblockSummary found = read_superblock(store->fd_);
    if (found.is_store && found.version != store_version)
        failure.message = path + " is a store of version " + std::to_string(found.version) +
                          ", this Assay reads version " + std::to_string(store_version);
    else if (!found.is_store || !found.fits(bytes_of(store->fd_)))
        failure.message = path + " is not a store of Assay, or it is damaged";
    if (failure) return nullptr;
    if (shared_lock && flock(store->fd_, LOCK_SH | LOCK_NB)) {
        failure.message = path + " is in use by another job";
        return nullptr;
    }
    store->layout_ = found.layout;
    if (!store->map(found.bytes, failure)) return nullptr;
    store->same_pids_ = store->superblock().pid_namespace == pid_namespace() &&
                        boot_id() == store->superblock().boot;
    return store;
}

Store::~Store() {
    unmap();
    if (fd_ >= 0) close(fd_);
}

void Store::unmap() {
    if (map_) munmap(map_, mapped_bytes_);
    map_ = nullptr;
}

std::uint64_t Store::now() const {
    return time_with(superblock().clock_offset.load(std::memory_order_relaxed));
}

// All ranks of a node may call it at once: they advance the clock together, not one after another.
void Store::advance_clock(std::uint64_t sequence) const {
    auto& offset = superblock().clock_offset;
    for (std::int64_t known = offset.load();;) {
        const std::uint64_t current = time_with(known);
        if (sequence <= current) return;
        const auto advanced = static_cast<std::uint64_t>(known) + (sequence - current);
        if (offset.compare_exchange_weak(known, static_cast<std::int64_t>(advanced))) return;
    }
}

// The clock may have restarted with the host. Positions that are from no clock are damaged: their
// data count as not durable.
void Store::advance_clock_past_data(std::uint64_t latest_record) const {
    std::uint64_t latest = latest_record + 1;
    for (const auto k : assigned_slots())
        for (const auto* position : {&file(k).drained_before, &file(k).durable})
            if (*position <= latest_sequence) latest = std::max(latest, position->load());
    advance_clock(latest);
    for (const auto k : assigned_slots()) {
        if (file(k).drained_before > latest_sequence) file(k).drained_before = now();
        if (file(k).durable > latest_sequence) file(k).durable = 0;
    }
}

void Store::request_drain() const {
    superblock().drain_requests.fetch_add(1);
    syscall(SYS_futex, &superblock().drain_requests, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Store::request_sync() const {
    superblock().sync_requests.fetch_add(1);
    syscall(SYS_futex, &superblock().sync_requests, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int Store::allocate(std::size_t from, std::size_t bytes) const {
    if (backing_ == Backing::device) return 0;
    if (fallocate(fd_, 0, static_cast<off_t>(from), static_cast<off_t>(bytes)) == 0) return 0;
    return errno == EOPNOTSUPP ? populate(from, bytes) : errno;
}

int Store::populate(std::size_t from, std::size_t bytes) const {
    if (!bytes) return 0;
    const std::size_t begin = from / page * page,
                      end = std::min(mapped_bytes_, (from + bytes + page - 1) / page * page);
    // A file system allocates a file's blocks in fallocate. A tmpfs allocates pages at the first
    // touch, and huge ones if it is configured so.
    if (backing_ == Backing::file &&
        fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)))
        if (errno != EOPNOTSUPP) return errno;
    if (!madvise(map_ + begin, end - begin, MADV_POPULATE_WRITE)) return 0;
    if (errno == EINVAL) return touch_pages(begin, end);  // before Linux 5.14
    return errno == EFAULT || errno == ENOMEM ? ENOSPC : errno;
}

void Store::release(std::size_t from, std::size_t bytes) const {
    const std::size_t begin = (from + page - 1) / page * page, end = (from + bytes) / page * page;
    if (in_memory() && begin < end)
        fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                  static_cast<off_t>(end - begin));
}

// Touches page by page. On a full file system that would raise SIGBUS, so the space is allocated
// first.
int Store::touch_pages(std::size_t begin, std::size_t end) const {
    if (backing_ != Backing::device &&
        fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)))
        if (errno != EOPNOTSUPP) return errno;
    for (std::size_t offset = begin; offset < end; offset += page)
        reinterpret_cast<std::atomic<char>*>(map_ + offset)->fetch_or(0);
    return 0;
}

void Store::map_pages(std::size_t from, std::size_t bytes) const {
    const std::size_t begin = from / page * page,
                      end = std::min(mapped_bytes_, (from + bytes + page - 1) / page * page);
    if (begin < end) madvise(map_ + begin, end - begin, MADV_POPULATE_READ);
}

bool Store::has_ended(std::uint32_t pid) const {
    if (!same_pids_ || !pid) return false;
    if (kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
    return is_zombie(pid);
}

bool Store::is_from_earlier_boot() const { return boot_id() != superblock().boot; }

void Store::note_alive() const {
    timespec realtime{};
    clock_gettime(CLOCK_REALTIME_COARSE, &realtime);
    superblock().alive_ns.store(realtime.tv_sec * 1'000'000'000 + realtime.tv_nsec,
                                std::memory_order_relaxed);
    persist(&superblock().alive_ns, sizeof superblock().alive_ns);
}

void Store::persist(const void* from, std::size_t bytes) const {
    if (!persistent_) return;
    write_back(from, bytes);
    persist_fence();
}

void Store::set_phase(Phase phase) const {
    superblock().phase.store(phase);
    persist(&superblock(), cache_line * 5);
}

void Store::finish() {
    superblock().background = 0;
    if (!superblock().keep[0]) return remove();
    // A job after a restart of the machine relies on the counters and on the state of the files.
    for (std::uint32_t rank = 0; rank < layout_.ranks; ++rank)
        persist(&head(rank), sizeof(RankHead));
    for (const auto k : assigned_slots()) persist(&file(k), offsetof(FileSlot, path));
    set_phase(Phase::kept);
}

void Store::remove() {
    set_phase(Phase::clean);
    if (backing_ != Backing::device) unlink_file(fd_, path_);
}

}  // namespace assay::storage
