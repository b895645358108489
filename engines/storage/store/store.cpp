// Creates, maps, locks and removes stores. A store is a file (usually in tmpfs) or a dax device
// that all ranks of a node map; layout.hpp describes its contents.
#include "storage/store/store.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

#include "storage/store/available_memory.hpp"
#include "storage/store/network_file_system.hpp"
#include "storage/store/persist.hpp"

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

constexpr long tmpfs_magic = 0x01021994;  // statfs(2)
constexpr std::uint64_t data_bytes_per_record = 8192;
constexpr std::uint64_t min_records = 1u << 16;
constexpr std::uint64_t min_ring_bytes = 1u << 20;
constexpr std::uint64_t huge_page = 2u << 20;  // the alignment of a dax device
// Sequences above this are not from a job's clock, so their records are damaged.
constexpr std::uint64_t latest_sequence = ~0ull / 2;

std::string errno_text() { return std::strerror(errno); }

// The size of a dax device in bytes; 0 if it is not known.
std::uint64_t device_bytes(const struct stat& info) {
    char path[128];
    std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(info.st_rdev),
                  minor(info.st_rdev));
    std::uint64_t bytes = 0;
    if (FILE* file = std::fopen(path, "r")) {
        char text[32];
        if (std::fgets(text, sizeof text, file)) bytes = std::strtoull(text, nullptr, 10);
        std::fclose(file);
    }
    return bytes / huge_page * huge_page;
}

// Whether it is a dax device. Other character devices are never opened, because opening one may
// have side effects.
bool is_dax_device(const struct stat& info) {
    char path[128], target[PATH_MAX];
    std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/subsystem", major(info.st_rdev),
                  minor(info.st_rdev));
    const ssize_t length = readlink(path, target, sizeof target);
    if (length <= 0) return false;
    const std::string_view text(target, static_cast<std::size_t>(length));
    return S_ISCHR(info.st_mode) && text.substr(text.rfind('/') + 1) == "dax";
}

// -1: it is neither a regular file nor a dax device, or cannot be opened; errno says why.
int open_store_file(const std::string& path) {
    struct stat info{};
    if (stat(path.c_str(), &info)) return -1;
    if (!S_ISREG(info.st_mode) && !is_dax_device(info)) {
        errno = ENODEV;
        return -1;
    }
    return open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

// Whether a layout that was read from a store is valid: its parts are aligned, and no product of
// its numbers overflows.
bool is_sound(const StoreLayout& layout) {
    return layout.ranks && layout.ranks < (1u << 20) && layout.record_slots &&
           layout.record_slots < (1ull << 40) && layout.ring_bytes &&
           layout.ring_bytes < (1ull << 50) && layout.rank_bytes() % page == 0 &&
           layout.record_slots % (page / sizeof(Record)) == 0;
}

// Some fields of a superblock; `is_store` is false if there is none.
struct SuperblockSummary {
    bool is_store = false;
    std::uint32_t version = 0;
    Phase phase = Phase::clean;
    std::string job, keep, boot;
    StoreLayout layout{};
    std::uint64_t bytes = 0;
    bool persistent = false;
};

SuperblockSummary read_superblock(int fd, std::size_t existing_bytes) {
    if (existing_bytes < StoreLayout::ranks_offset()) return {};
    void* map = mmap(nullptr, huge_page, PROT_READ, MAP_SHARED, fd,
                     0);  // a device can only be mapped in whole huge pages
    if (map == MAP_FAILED) return {};
    const auto& superblock = *static_cast<const Superblock*>(map);
    SuperblockSummary summary{
        superblock.magic == store_magic,
        superblock.version,
        superblock.phase,
        std::string(superblock.job, strnlen(superblock.job, sizeof superblock.job)),
        std::string(superblock.keep, strnlen(superblock.keep, sizeof superblock.keep)),
        std::string(superblock.boot, strnlen(superblock.boot, sizeof superblock.boot)),
        StoreLayout{superblock.ranks, superblock.record_slots, superblock.ring_bytes},
        superblock.bytes,
        superblock.persistent == 1};
    munmap(map, huge_page);
    return summary;
}

std::string boot_id() {
    char text[40]{};
    if (FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
        if (std::fgets(text, sizeof text, file)) text[std::strcspn(text, "\n")] = 0;
        std::fclose(file);
    }
    return text;
}

std::uint64_t pid_namespace() {
    struct stat info{};
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
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

// Locks the store exclusively. Waits up to 600 s for the background drain of a job that has ended,
// and up to 1 s for a command that lists the store. Returns whether the store is locked.
bool lock_alone(int fd, const struct stat& info) {
    constexpr int drain_limit_s = 600, reader_limit_s = 1, polls_per_s = 50;
    for (int poll = 0; flock(fd, LOCK_EX | LOCK_NB); ++poll) {
        const std::uint64_t bytes =
            S_ISCHR(info.st_mode) ? device_bytes(info) : static_cast<std::uint64_t>(info.st_size);
        const bool drains = read_superblock(fd, bytes).phase == Phase::detached;
        if (poll > (drains ? drain_limit_s : reader_limit_s) * polls_per_s) return false;
        usleep(1'000'000 / polls_per_s);
    }
    return true;
}

// An error message if a device or file holds data of another job and must not be overwritten; empty
// if it may be.
std::string unrecovered_data(int fd, const std::string& path, std::size_t existing_bytes) {
    const auto [is_store, version, phase, job, keep, boot, layout, bytes, persistent] =
        read_superblock(fd, existing_bytes);
    if (!is_store || phase == Phase::clean || phase == Phase::formatting) return {};
    if (version != store_version)
        return path + " holds data of another version of Assay (job " + job +
               "); fix: recover them with that version";
    if (phase == Phase::kept)
        return path + " is kept as " + keep + "; fix: --keep " + keep + ", or assay io drop " +
               keep;
    return path + " holds data of job " + job +
           " that may not be in the file system yet; fix: assay io recover " + path;
}

}  // namespace

bool lies_in_file_table_and_ring(const Store& store, std::uint32_t rank, const Record& record) {
    if (record.file >= file_slots || record.sequence > latest_sequence) return false;
    if (static_cast<RecordKind>(record.kind) != RecordKind::data) return true;
    const auto ring = store.head(rank).ring_bytes.load();
    std::uint64_t bytes = 0;
    return ring && ring <= store.layout().ring_bytes && record.length &&
           !__builtin_mul_overflow(record.length, std::uint64_t{record.count}, &bytes) &&
           bytes <= ring && record.ring_offset % ring + bytes <= ring;
}

std::uint64_t checksum_of(const Store& store, std::uint32_t rank, const Record& record) {
    constexpr std::size_t fields = offsetof(Record, checksum);
    const bool has_data = static_cast<RecordKind>(record.kind) == RecordKind::data;
    if (!store.persistent() || !has_data) return XXH3_64bits(&record, fields);
    const std::uint64_t data_hash =
        XXH3_64bits(store.data(rank, record.ring_offset), record.length * record.count);
    return XXH3_64bits_withSeed(&record, fields, data_hash);
}

StoreLayout StoreLayout::fit(std::size_t bytes, std::uint32_t ranks) {
    StoreLayout layout{ranks, min_records, 0};
    if (bytes <= ranks_offset()) return layout;
    const std::uint64_t rank_bytes = (bytes - ranks_offset()) / ranks / page * page;
    if (rank_bytes > rank_overhead())
        layout.record_slots =
            std::max(min_records, rank_bytes / (data_bytes_per_record + sizeof(Record)) / 64 * 64);
    const std::uint64_t overhead = rank_overhead() + layout.record_slots * sizeof(Record);
    layout.ring_bytes = rank_bytes > overhead ? (rank_bytes - overhead) / page * page : 0;
    return layout;
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
        rank_head.evicting = rank_head.pid = 0;
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
    block.drain_requests = block.table_lock = block.drain_lock = block.eviction_stopped =
        block.write_failed = block.batch_committed = block.background = block.background_requests =
            0;
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
        rank_head.evicting = rank_head.pid = 0;
        for (std::uint32_t k = 0; k < file_slots; ++k) descriptor_of(rank, k) = 0;
    }
    for (std::uint32_t k = 0; k < file_slots && file(k).generation.load(); ++k) {
        file(k).users = 0;
        file(k).acknowledged = file(k).background_open_failed = 0;
    }
    for (std::uint32_t k = 0; k < file_slots; ++k) background_descriptor_of(k) = 0;
    std::memcpy(block.previous_job, block.job, sizeof block.job);
    block.previous_nodes = block.nodes;
    begin_job(job);
    advance_clock(latest + 1);
    taken_over_ = true;
    return true;
}

std::unique_ptr<Store> Store::create(const std::string& location, std::uint64_t size,
                                     std::uint32_t ranks, const std::string& job,
                                     const std::string& name, Failure& failure,
                                     const std::string& keep) {
    std::unique_ptr<Store> store(new Store);
    struct stat info{};
    const bool exists = stat(location.c_str(), &info) == 0;
    const bool is_folder = exists && S_ISDIR(info.st_mode);
    store->path_ = is_folder ? location + "/assay-io-" + name : location;
    if (!exists && location.find_last_of('/') != std::string::npos) {
        struct stat parent{};
        const std::string parent_path =
            location.substr(0, std::max<std::size_t>(1, location.find_last_of('/')));
        if (stat(parent_path.c_str(), &parent) || !S_ISDIR(parent.st_mode)) {
            failure.message = location + " cannot be a store: there is no folder " + parent_path;
            return nullptr;
        }
    }
    const bool is_device = exists && S_ISCHR(info.st_mode);
    if (exists && !is_folder && !is_device && !S_ISREG(info.st_mode)) {
        failure.message =
            location + " cannot be a store: it is neither a folder, a file nor a /dev/dax device";
        return nullptr;
    }
    store->fd_ = open(store->path_.c_str(), O_RDWR | O_CLOEXEC | (is_device ? 0 : O_CREAT), 0600);
    if (store->fd_ < 0) {
        failure.message = store->path_ + " cannot be opened as a store: " + errno_text();
        return nullptr;
    }
    fstat(store->fd_, &info);
    if (const char* system = incoherent_file_system(store->fd_)) {
        failure.message = location + " cannot be a store: it is on " + system +
                          ", which is not memory or storage of one node; fix: --store with a "
                          "folder of the node, such as /dev/shm";
        if (fstat(store->fd_, &info) == 0 && info.st_size == 0) unlink(store->path_.c_str());
        return nullptr;
    }
    if (!lock_alone(store->fd_, info)) {
        failure.message = store->path_ + " is in use by another job";
        return nullptr;
    }
    fstat(store->fd_, &info);
    const std::uint64_t existing_bytes =
        is_device ? device_bytes(info) : static_cast<std::uint64_t>(info.st_size);
    if (!is_device && info.st_uid != geteuid()) {
        failure.message = store->path_ + " belongs to another user";
        return nullptr;
    }
    const SuperblockSummary existing_store = read_superblock(store->fd_, existing_bytes);
    struct statfs fs_info{};
    fstatfs(store->fd_, &fs_info);
    store->backing_ = is_device                       ? Backing::device
                      : fs_info.f_type == tmpfs_magic ? Backing::memory
                                                      : Backing::file;
    // A file from before a restart of the machine may lack data that were only in the page cache,
    // so a kept store must be of this boot, or in persistent memory.
    const bool is_restarted = existing_store.boot != boot_id();
    if (!keep.empty() && existing_store.is_store && existing_store.phase == Phase::kept &&
        existing_store.keep == keep && existing_store.version == store_version &&
        (!is_restarted || existing_store.persistent)) {
        if (existing_store.layout.ranks != ranks) {
            failure.message = "the store that is kept as " + keep + " has " +
                              std::to_string(existing_store.layout.ranks) +
                              " ranks on this node, this job has " + std::to_string(ranks) +
                              "; fix: assay io drop " + keep;
            return nullptr;
        }
        store->layout_ = existing_store.layout;
        if (!is_sound(existing_store.layout) ||
            existing_store.layout.bytes() > existing_store.bytes ||
            existing_store.bytes > existing_bytes) {
            failure.message = store->path_ + " is damaged; fix: assay io drop " + keep;
            return nullptr;
        }
        if (!store->map(existing_store.bytes, failure)) return nullptr;
        if (!is_restarted || (store->persistent() && store->is_intact())) {
            if (!store->take_over(job, failure)) return nullptr;
            store->restarted_ = is_restarted;
            store->same_pids_ = true;
            flock(store->fd_, LOCK_SH);
            return store;
        }
        munmap(store->map_, store->mapped_bytes_);
        store->map_ = nullptr;
        store->replaced_damaged_ = true;
    }
    // A kept store of this name that cannot be taken over is replaced.
    const bool outdated =
        !keep.empty() && existing_store.phase == Phase::kept && existing_store.keep == keep;
    if (const auto problem =
            outdated ? std::string() : unrecovered_data(store->fd_, store->path_, existing_bytes);
        !problem.empty()) {
        failure.message = problem;
        return nullptr;
    }
    const std::uint64_t free_bytes =
        static_cast<std::uint64_t>(fs_info.f_bavail) * fs_info.f_bsize +
        (is_device ? 0 : existing_bytes);
    std::uint64_t bytes = size;
    if (is_device) bytes = size && size < existing_bytes ? size : existing_bytes;
    else if (!bytes)
        bytes = store->backing_ == Backing::memory
                    ? std::min(free_bytes / 2, available_memory() / 4)
                    : free_bytes / 2;
    bytes = bytes / huge_page * huge_page;
    store->layout_ = StoreLayout::fit(bytes, ranks);
    const bool remove_on_failure = !exists || is_folder;
    if (store->layout_.ring_bytes < min_ring_bytes) {
        failure.message = location + " is too small for " + std::to_string(ranks) +
                          " ranks: " + std::to_string(bytes >> 20) +
                          " MiB, but each rank needs 6 MiB and the tables need 16 MiB";
        if (remove_on_failure) unlink(store->path_.c_str());
        return nullptr;
    }
    // A new tmpfs file reads as zero, as format() expects.
    if (store->backing_ == Backing::memory && ftruncate(store->fd_, 0)) bytes = 0;
    if (!is_device && ftruncate(store->fd_, static_cast<off_t>(bytes))) {
        failure.message = store->path_ + " cannot be extended to " + std::to_string(bytes >> 20) +
                          " MiB: " + errno_text();
        if (remove_on_failure) unlink(store->path_.c_str());
        return nullptr;
    }
    if (!store->map(bytes, failure)) return nullptr;
    int error = store->populate(0, superblock_bytes);
    if (!error) error = store->populate(StoreLayout::background_offset(), sizeof(DescriptorTable));
    for (std::uint32_t rank = 0; rank < ranks && !error; ++rank)
        error = store->populate(store->layout_.head_offset(rank), StoreLayout::rank_overhead());
    if (error) {
        failure.message = store->path_ + " has no space left: " + std::strerror(error);
        if (remove_on_failure) unlink(store->path_.c_str());
        return nullptr;
    }
    store->format(job, keep, store->backing_ == Backing::memory || !existing_bytes);
    store->same_pids_ = true;
    flock(store->fd_, LOCK_SH);  // the other ranks of the node hold it too
    return store;
}

std::uint32_t version_of(const std::string& path) {
    const int fd = open_store_file(path);
    struct stat info{};
    SuperblockSummary existing_store;
    if (fd >= 0 && fstat(fd, &info) == 0)
        existing_store =
            read_superblock(fd, S_ISCHR(info.st_mode) ? device_bytes(info)
                                                      : static_cast<std::uint64_t>(info.st_size));
    if (fd >= 0) close(fd);
    return existing_store.is_store ? existing_store.version : 0;
}

bool is_incomplete(const std::string& path) {
    const int fd = open_store_file(path);
    if (fd < 0) return false;
    struct stat info{};
    bool incomplete = false;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const SuperblockSummary found =
            read_superblock(fd, static_cast<std::uint64_t>(info.st_size));
        // The phase is the first field that is written; the others are zero until then.
        incomplete = info.st_size == 0 ||
                     (found.phase == Phase::formatting && (found.is_store || !found.version));
    }
    close(fd);
    return incomplete;
}

void erase_store(const std::string& path, Failure& failure) {
    const int fd = open_store_file(path);
    struct stat info{};
    if (fd < 0 || fstat(fd, &info)) failure.message = path + " cannot be opened: " + errno_text();
    else if (flock(fd, LOCK_EX | LOCK_NB)) failure.message = path + " is in use by a job";
    else if (S_ISREG(info.st_mode)) {
        if (unlink(path.c_str())) failure.message = path + " cannot be removed: " + errno_text();
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
    struct stat info{};
    fstat(store->fd_, &info);
    const bool is_device = S_ISCHR(info.st_mode);
    struct statfs fs_info{};
    fstatfs(store->fd_, &fs_info);
    store->backing_ = is_device                       ? Backing::device
                      : fs_info.f_type == tmpfs_magic ? Backing::memory
                                                      : Backing::file;
    const std::uint64_t existing_bytes =
        is_device ? device_bytes(info) : static_cast<std::uint64_t>(info.st_size);
    const auto [is_store, version, phase, job, keep, boot, layout, bytes, persistent] =
        read_superblock(store->fd_, existing_bytes);
    const bool fits = is_sound(layout) && layout.bytes() <= bytes && bytes <= existing_bytes;
    if (is_store && version != store_version)
        failure.message = path + " is a store of version " + std::to_string(version) +
                          ", this Assay reads version " + std::to_string(store_version);
    else if (!is_store || !fits)
        failure.message = path + " is not a store of Assay, or it is damaged";
    if (failure) return nullptr;
    if (shared_lock && flock(store->fd_, LOCK_SH | LOCK_NB)) {
        failure.message = path + " is in use by another job";
        return nullptr;
    }
    store->layout_ = layout;
    if (!store->map(bytes, failure)) return nullptr;
    store->same_pids_ = store->superblock().pid_namespace == pid_namespace() &&
                        boot_id() == store->superblock().boot;
    return store;
}

Store::~Store() {
    if (map_) munmap(map_, mapped_bytes_);
    if (fd_ >= 0) close(fd_);
}

std::uint64_t Store::now() const {
    timespec steady{};
    clock_gettime(CLOCK_MONOTONIC, &steady);
    // Unsigned, because a damaged store may have any offset, and a signed sum could overflow.
    return static_cast<std::uint64_t>(steady.tv_sec * 1'000'000'000 + steady.tv_nsec) +
           static_cast<std::uint64_t>(superblock().clock_offset.load(std::memory_order_relaxed));
}

void Store::advance_clock(std::uint64_t sequence) const {
    const std::uint64_t current = now();
    if (sequence > current)
        superblock().clock_offset.fetch_add(static_cast<std::int64_t>(sequence - current));
}

void Store::request_drain() const {
    superblock().drain_requests.fetch_add(1);
    syscall(SYS_futex, &superblock().drain_requests, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
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
    for (std::uint32_t k = 0; k < file_slots && file(k).generation.load(); ++k)
        persist(&file(k), offsetof(FileSlot, path));
    set_phase(Phase::kept);
}

void Store::remove() {
    set_phase(Phase::clean);
    if (backing_ != Backing::device) unlink(path_.c_str());
}

}  // namespace assay::storage
