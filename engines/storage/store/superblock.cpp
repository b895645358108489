// Maps the beginning of a file or device for a moment, and copies what its superblock says.
#include "storage/store/superblock.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

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

}  // namespace

bool SuperblockSummary::fits(std::uint64_t existing_bytes) const {
    return is_sound(layout) && layout.bytes() <= bytes && bytes <= existing_bytes;
}

bool SuperblockSummary::is_kept_as(const std::string& name) const {
    return is_store && phase == Phase::kept && !name.empty() && keep == name;
}

SuperblockSummary read_superblock(int fd) {
    SuperblockSummary summary;
    if (bytes_of(fd) < StoreLayout::ranks_offset()) return summary;
    // A device can only be mapped in whole huge pages.
    void* map = mmap(nullptr, huge_page, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return summary;
    const auto& superblock = *static_cast<const Superblock*>(map);
    summary.is_store = superblock.magic == store_magic;
    summary.version = superblock.version;
    summary.phase = superblock.phase;
    summary.job = text_of(superblock.job);
    summary.keep = text_of(superblock.keep);
    summary.boot = text_of(superblock.boot);
    summary.layout = {superblock.ranks, superblock.record_slots, superblock.ring_bytes};
    summary.bytes = superblock.bytes;
    summary.persistent = superblock.persistent == 1;
    munmap(map, huge_page);
    return summary;
}

std::uint32_t version_of(const std::string& path) {
    const int fd = open_store_file(path);
    if (fd < 0) return 0;
    const SuperblockSummary found = read_superblock(fd);
    close(fd);
    return found.is_store ? found.version : 0;
}

bool is_incomplete(const std::string& path) {
    const int fd = open_store_file(path);
    if (fd < 0) return false;
    struct stat info{};
    bool incomplete = false;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        const SuperblockSummary found = read_superblock(fd);
        // The phase is the first field that is written; the others are zero until then.
        incomplete = info.st_size == 0 ||
                     (found.phase == Phase::formatting && (found.is_store || !found.version));
    }
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
