// Reads the beginning of a file, or maps that of a device for a moment, and copies what its
// superblock says. A file is not mapped: who truncates it meanwhile would end this process.
#include "storage/store/superblock.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "storage/store/backing.hpp"

namespace assay::storage {
namespace {

template <std::size_t size>
std::string text_of(const char (&field)[size]) {
    return {field, strnlen(field, size)};
}

// Whether a layout that was read from a store is valid: its parts are aligned, and no product of
// its numbers overflows.
bool is_sound(const StoreLayout& layout) {
    return layout.ranks && layout.ranks < (1u << 20) && layout.record_slots &&
           layout.record_slots < (1ull << 40) && layout.ring_bytes &&
           layout.ring_bytes < (1ull << 50) && layout.rank_bytes() % page == 0 &&
           layout.record_slots % (page / sizeof(Record)) == 0;
}

SuperblockSummary summary_of(const Superblock& superblock) {
    SuperblockSummary summary;
    summary.is_store = superblock.magic == store_magic;
    summary.version = superblock.version;
    summary.phase = superblock.phase;
    summary.job = text_of(superblock.job);
    summary.keep = text_of(superblock.keep);
    summary.boot = text_of(superblock.boot);
    summary.layout = {superblock.ranks, superblock.record_slots, superblock.ring_bytes};
    summary.bytes = superblock.bytes;
    summary.persistent = superblock.persistent == 1;
    return summary;
}

}  // namespace

bool SuperblockSummary::fits(std::uint64_t existing_bytes) const {
    return is_sound(layout) && layout.bytes() <= bytes && bytes <= existing_bytes;
}

bool SuperblockSummary::is_kept_as(const std::string& name) const {
    return is_store && phase == Phase::kept && !name.empty() && keep == name;
}

SuperblockSummary read_superblock(int fd) {
    if (bytes_of(fd) < StoreLayout::ranks_offset()) return {};
    if (backing_of(fd) != Backing::device) {
        const auto superblock = std::make_unique<Superblock>();  // a program's stack may be small
        const bool is_read = pread(fd, superblock.get(), sizeof(Superblock), 0) ==
                             static_cast<ssize_t>(sizeof(Superblock));
        return is_read ? summary_of(*superblock) : SuperblockSummary{};
    }
    // A device can only be mapped, in whole huge pages.
    void* map = mmap(nullptr, huge_page, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return {};
    SuperblockSummary summary = summary_of(*static_cast<const Superblock*>(map));
    munmap(map, huge_page);
    return summary;
}

std::uint32_t version_of(const std::string& path) {
    const int fd = open_store_file(path);
    if (fd < 0) return 0;
    const SuperblockSummary found =
        is_of_another_user(fd) ? SuperblockSummary{} : read_superblock(fd);
    close(fd);
    return found.is_store ? found.version : 0;
}

bool is_incomplete(int fd) {
    struct stat info{};
    if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return false;
    const SuperblockSummary found = read_superblock(fd);
    // The phase is the first field that is written; the others are zero until then.
    return info.st_size == 0 ||
           (found.phase == Phase::formatting && (found.is_store || !found.version));
}

bool is_incomplete(const std::string& path) {
    const int fd = open_store_file(path);
    if (fd < 0) return false;
    const bool incomplete = is_incomplete(fd);
    close(fd);
    return incomplete;
}

std::string boot_id() {
    char text[40]{};
    if (FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
        if (std::fgets(text, sizeof text, file)) text[std::strcspn(text, "\n")] = 0;
        std::fclose(file);
    }
    return text;
}

}  // namespace assay::storage
