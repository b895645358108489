#include "storage/store/store.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
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
#include <cstring>
#include <ctime>

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

constexpr long tmpfs_magic = 0x01021994;
constexpr std::uint64_t record_per = 8192;  // bytes of data for which there is one record
constexpr std::uint64_t least_records = 1u << 16;
constexpr std::uint64_t least_ring = 1u << 20;
constexpr std::uint64_t huge_page = 2u << 20;  // the alignment of a dax device

std::string reason() { return std::strerror(errno); }

std::uint64_t available_memory() {
    std::uint64_t kib = 0;
    if (FILE* file = std::fopen("/proc/meminfo", "r")) {
        char text[128];
        while (std::fgets(text, sizeof text, file))
            if (std::sscanf(text, "MemAvailable: %lu", &kib) == 1) break;
        std::fclose(file);
    }
    return kib << 10;
}

std::uint64_t device_bytes(const struct stat& about) {
    char path[128];
    std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/size", major(about.st_rdev),
                  minor(about.st_rdev));
    std::uint64_t bytes = 0;
    if (FILE* file = std::fopen(path, "r")) {
        if (std::fscanf(file, "%lu", &bytes) != 1) bytes = 0;
        std::fclose(file);
    }
    return bytes / huge_page * huge_page;
}

// The numbers of a superblock, if there is one.
struct Peek {
    bool store = false;
    std::uint32_t version = 0;
    Phase phase = Phase::clean;
    std::string job;
    Shape shape{};
    std::uint64_t bytes = 0;
};

Peek peek(int fd, std::size_t present) {
    if (present < Shape::first_rank()) return {};
    void* map = mmap(nullptr, huge_page, PROT_READ, MAP_SHARED, fd,
                     0);  // a device maps in whole huge pages only
    if (map == MAP_FAILED) return {};
    const auto& super = *static_cast<const Superblock*>(map);
    Peek seen{super.magic == store_magic,
              super.version,
              super.phase,
              std::string(super.job, strnlen(super.job, sizeof super.job)),
              Shape{super.ranks, super.record_slots, super.ring_bytes},
              super.bytes};
    munmap(map, huge_page);
    return seen;
}

// What another job has left in a device or file that is to be used, in words; empty: nothing that
// counts.
std::string left_behind(int fd, const std::string& path, std::size_t present) {
    const auto [store, version, phase, job, shape, bytes] = peek(fd, present);
    if (!store || phase == Phase::clean || phase == Phase::making) return {};
    if (version != store_version)
        return path + " holds data of another version of Assay (job " + job +
               "); recover them with that version";
    return path + " holds data of job " + job +
           " that may not be in the file system yet; first: assay io recover " + path;
    return {};
}

}  // namespace

std::uint64_t check_of(const Record& record) {
    return XXH3_64bits(&record, offsetof(Record, check));
}

Shape Shape::fitting(std::size_t bytes, std::uint32_t ranks) {
    Shape shape{ranks, least_records, 0};
    if (bytes <= first_rank()) return shape;
    const std::uint64_t each = (bytes - first_rank()) / ranks / page * page;
    if (each > page)
        shape.record_slots =
            std::max(least_records, each / (record_per + sizeof(Record)) / 64 * 64);
    const std::uint64_t overhead = page + shape.record_slots * sizeof(Record);
    shape.ring_bytes = each > overhead ? (each - overhead) / page * page : 0;
    return shape;
}

bool Store::map(std::size_t bytes, Failure& failure) {
    // With MAP_SYNC what is flushed from the cache is on the medium: a device, or a file system
    // with dax.
    void* map =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd_, 0);
    persistent_ = map != MAP_FAILED;
    if (map == MAP_FAILED) map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (map == MAP_FAILED) {
        failure.what = path_ + " cannot be mapped: " + reason();
        return false;
    }
    map_ = static_cast<char*>(map);
    mapped_ = bytes;
    madvise(map_, bytes, MADV_HUGEPAGE);
    madvise(map_, bytes, MADV_DONTDUMP);
    return true;
}

void Store::format(const std::string& job) {
    auto& about = super();
    about.phase.store(Phase::making);
    about.magic = store_magic;
    about.version = store_version;
    about.ranks = shape_.ranks;
    about.bytes = mapped_;
    about.record_slots = shape_.record_slots;
    about.ring_bytes = shape_.ring_bytes;
    std::snprintf(about.job, sizeof about.job, "%s", job.c_str());
    gethostname(about.host, sizeof about.host - 1);
    about.created = std::time(nullptr);
    about.persistent = persistent_;
    timespec real{}, steady{};
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &steady);
    about.skew = (real.tv_sec - steady.tv_sec) * 1'000'000'000 + real.tv_nsec - steady.tv_nsec;
    about.hurry = about.table_lock = about.drain_lock = about.drain_failed = 0;
    about.discarded = 0;
    for (std::size_t k = 0; k < pointer_slots; ++k)
        about.pointers[k] = 0, about.pointer_used[k] = 0;
    if (backing_ !=
        Backing::memory)  // a fresh file of a tmpfs is zero as it is, and is not to be touched
        for (std::uint32_t k = 0; k < file_slots; ++k) file(k).generation = 0, file(k).users = 0;
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
        auto& of = head(rank);
        of.tail = of.pending = of.drained = of.first_record = of.first_byte = 0;
        of.ring = shape_.ring_bytes;
        of.real = backing_ == Backing::device ? shape_.ring_bytes : 0;
    }
    write_back(&about, superblock_bytes);
    persist_fence();
}

std::unique_ptr<Store> Store::make(const std::string& where, std::uint64_t size,
                                   std::uint32_t ranks, const std::string& job,
                                   const std::string& name, Failure& failure) {
    std::unique_ptr<Store> store(new Store);
    struct stat about{};
    const bool exists = stat(where.c_str(), &about) == 0;
    const bool folder = exists && S_ISDIR(about.st_mode);
    store->path_ = folder ? where + "/assay-io-" + name : where;
    if (!exists && where.find_last_of('/') != std::string::npos) {
        struct stat parent{};
        const std::string above =
            where.substr(0, std::max<std::size_t>(1, where.find_last_of('/')));
        if (stat(above.c_str(), &parent) || !S_ISDIR(parent.st_mode)) {
            failure.what = where + " cannot be a store: there is no folder " + above;
            return nullptr;
        }
    }
    const bool device = exists && S_ISCHR(about.st_mode);
    if (exists && !folder && !device && !S_ISREG(about.st_mode)) {
        failure.what = where + " cannot be a store: name a folder, a file or a /dev/dax device";
        return nullptr;
    }
    store->fd_ = open(store->path_.c_str(), O_RDWR | O_CLOEXEC | (device ? 0 : O_CREAT), 0600);
    if (store->fd_ < 0) {
        failure.what = store->path_ + " cannot be opened as a store: " + reason();
        return nullptr;
    }
    if (flock(store->fd_, LOCK_EX | LOCK_NB)) {
        failure.what = store->path_ + " is in use by another job";
        return nullptr;
    }
    fstat(store->fd_, &about);
    const std::uint64_t present =
        device ? device_bytes(about) : static_cast<std::uint64_t>(about.st_size);
    if (const auto left = left_behind(store->fd_, store->path_, present); !left.empty()) {
        failure.what = left;
        return nullptr;
    }
    struct statfs room{};
    fstatfs(store->fd_, &room);
    store->backing_ = device                       ? Backing::device
                      : room.f_type == tmpfs_magic ? Backing::memory
                                                   : Backing::file;
    const std::uint64_t free =
        static_cast<std::uint64_t>(room.f_bavail) * room.f_bsize + (device ? 0 : present);
    std::uint64_t bytes = size;
    if (device) bytes = size && size < present ? size : present;
    else if (!bytes)
        bytes = store->backing_ == Backing::memory ? std::min(free / 2, available_memory() / 4)
                                                   : free / 2;
    bytes = bytes / huge_page * huge_page;
    store->shape_ = Shape::fitting(bytes, ranks);
    const bool own = !exists || folder;
    if (store->shape_.ring_bytes < least_ring) {
        failure.what = where + " is too small for " + std::to_string(ranks) +
                       " ranks: " + std::to_string(bytes >> 20) +
                       " MiB, of which each needs 6 MiB and their tables 16 MiB";
        if (own) unlink(store->path_.c_str());
        return nullptr;
    }
    if (!device && ftruncate(store->fd_, static_cast<off_t>(bytes))) {
        failure.what = store->path_ + " cannot be made " + std::to_string(bytes >> 20) +
                       " MiB large: " + reason();
        if (own) unlink(store->path_.c_str());
        return nullptr;
    }
    if (!store->map(bytes, failure)) return nullptr;
    int error = store->populate(0, superblock_bytes);
    for (std::uint32_t rank = 0; rank < ranks && !error; ++rank)
        error = store->populate(store->shape_.head(rank), page);
    if (error) {
        failure.what = store->path_ + " has no room: " + std::strerror(error);
        if (own) unlink(store->path_.c_str());
        return nullptr;
    }
    store->format(job);
    return store;
}

std::unique_ptr<Store> Store::attach(const std::string& path, Failure& failure) {
    std::unique_ptr<Store> store(new Store);
    store->path_ = path;
    store->fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (store->fd_ < 0) {
        failure.what = path + " cannot be opened: " + reason();
        return nullptr;
    }
    struct stat about{};
    fstat(store->fd_, &about);
    const bool device = S_ISCHR(about.st_mode);
    if (!device && !S_ISREG(about.st_mode)) {
        failure.what = path + " is not a store of Assay";
        return nullptr;
    }
    struct statfs room{};
    fstatfs(store->fd_, &room);
    store->backing_ = device                       ? Backing::device
                      : room.f_type == tmpfs_magic ? Backing::memory
                                                   : Backing::file;
    const std::uint64_t present =
        device ? device_bytes(about) : static_cast<std::uint64_t>(about.st_size);
    const auto [good, version, phase, job, shape, bytes] = peek(store->fd_, present);
    const bool fits = shape.ranks && shape.ranks < (1u << 20) && shape.record_slots &&
                      shape.record_slots < (1ull << 40) && shape.ring_bytes &&
                      shape.ring_bytes < (1ull << 50) && shape.bytes() <= bytes && bytes <= present;
    if (good && version != store_version)
        failure.what = path + " is a store of version " + std::to_string(version) +
                       "; this Assay reads version " + std::to_string(store_version);
    else if (!good || !fits) failure.what = path + " is not a store of Assay, or a damaged one";
    if (failure) return nullptr;
    store->shape_ = shape;
    if (!store->map(bytes, failure)) return nullptr;
    return store;
}

Store::~Store() {
    if (map_) munmap(map_, mapped_);
    if (fd_ >= 0) close(fd_);
}

std::uint64_t Store::now() const {
    timespec steady{};
    clock_gettime(CLOCK_MONOTONIC, &steady);
    return static_cast<std::uint64_t>(steady.tv_sec * 1'000'000'000 + steady.tv_nsec +
                                      super().skew.load(std::memory_order_relaxed));
}

void Store::no_earlier(std::uint64_t moment) const {
    const std::uint64_t mine = now();
    if (moment > mine) super().skew.fetch_add(static_cast<std::int64_t>(moment - mine));
}

void Store::hurry() const {
    super().hurry.fetch_add(1);
    syscall(SYS_futex, &super().hurry, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int Store::populate(std::size_t from, std::size_t bytes) const {
    if (!bytes) return 0;
    const std::size_t begin = from / page * page,
                      end = std::min(mapped_, (from + bytes + page - 1) / page * page);
    // A file's blocks are its file system's to give. A tmpfs gives pages as they are touched: huge
    // ones, where it may.
    if (backing_ == Backing::file &&
        fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)))
        if (errno != EOPNOTSUPP) return errno;
    if (!madvise(map_ + begin, end - begin, MADV_POPULATE_WRITE)) return 0;
    if (errno == EINVAL) return touch(begin, end);  // before Linux 5.14
    return errno == EFAULT || errno == ENOMEM ? ENOSPC : errno;
}

// Page by page; what a full device does to that is not to be survived, so room is made sure of
// first.
int Store::touch(std::size_t begin, std::size_t end) const {
    if (backing_ != Backing::device &&
        fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)))
        if (errno != EOPNOTSUPP) return errno;
    for (std::size_t at = begin; at < end; at += page)
        reinterpret_cast<std::atomic<char>*>(map_ + at)->fetch_or(0);
    return 0;
}

void Store::map_ahead(std::size_t from, std::size_t bytes) const {
    const std::size_t begin = from / page * page,
                      end = std::min(mapped_, (from + bytes + page - 1) / page * page);
    if (begin < end) madvise(map_ + begin, end - begin, MADV_POPULATE_READ);
}

void Store::remove() {
    super().phase.store(Phase::clean);
    write_back(&super(), superblock_bytes);
    persist_fence();
    if (backing_ != Backing::device) unlink(path_.c_str());
}

TableLock::TableLock(const Store& store) : word_(store.super().table_lock) {
    std::uint32_t free = 0;
    while (!word_.compare_exchange_weak(free, 1, std::memory_order_acquire))
        free = 0, sched_yield();
}
TableLock::~TableLock() { word_.store(0, std::memory_order_release); }

std::uint32_t find_slot(const Store& store, std::uint64_t device, std::uint64_t inode) {
    for (std::uint32_t k = 0; k < file_slots; ++k) {
        const auto& slot = store.file(k);
        if (!slot.generation.load(std::memory_order_acquire))
            return file_slots;  // slots are taken from the front
        if (slot.device == device && slot.inode == inode && !slot.gone) return k;
    }
    return file_slots;
}

namespace {

// No record of the slot waits to be drained: the slot can serve another file.
bool idle(const Store& store, const FileSlot& slot) {
    if (slot.users.load()) return false;
    for (std::uint32_t rank = 0; rank < store.ranks(); ++rank)
        if (store.head(rank).drained.load() != store.head(rank).tail.load()) return false;
    return true;
}

}  // namespace

std::uint32_t slot_of(const Store& store, std::uint64_t device, std::uint64_t inode,
                      const std::string& path) {
    if (path.size() >= path_limit) return file_slots;
    TableLock lock(store);
    if (const auto known = find_slot(store, device, inode); known != file_slots) {
        store.file(known).users.fetch_add(1);
        return known;
    }
    std::uint32_t chosen = file_slots;
    for (std::uint32_t k = 0; k < file_slots && chosen == file_slots; ++k)
        if (!store.file(k).generation.load()) chosen = k;
    for (std::uint32_t k = 0; k < file_slots && chosen == file_slots; ++k)
        if (idle(store, store.file(k))) chosen = k;
    if (chosen == file_slots) return chosen;
    auto& slot = store.file(chosen);
    if (store.populate(Shape::files() + chosen * sizeof slot, sizeof slot)) return file_slots;
    slot.device = device;
    slot.inode = inode;
    slot.end = slot.forget_before = 0;
    slot.size = -1;
    slot.changed = slot.created = 0;
    slot.gone = 0;
    slot.users = 1;
    std::snprintf(slot.path, path_limit, "%s", path.c_str());
    slot.generation.fetch_add(1, std::memory_order_release);
    write_back(&slot, sizeof slot);
    persist_fence();
    return chosen;
}

}  // namespace assay::storage
