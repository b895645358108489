// Leaves a store of the I/O accelerator behind, as a killed job does: EXTENTS writes of BYTES each,
// one per record, in a scattered order, none of them drained to the file. Prints the store's path.
//
//   bench-leftover FOLDER FILE EXTENTS BYTES
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "storage/store/file_table.hpp"
#include "storage/store/store.hpp"
#include "storage/store/writer.hpp"

using namespace assay::storage;

namespace {

constexpr std::uint32_t ranks = 2;
constexpr std::uint64_t multiplier =
    0x9E3779B1;  // coprime to any number of extents below it: every offset occurs once

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const std::uint64_t extents = std::strtoull(argv[3], nullptr, 10),
                        bytes = std::strtoull(argv[4], nullptr, 10);
    const int fd = open(argv[2], O_CREAT | O_RDWR | O_TRUNC, 0644);
    FileStatus status;
    if (fd < 0 || read_status(fd, status)) return 2;
    Failure failure;
    // The store has a record for every 8 KiB, so it is large; little of it gets pages.
    auto store =
        Store::create(argv[1], extents * 10'000, ranks, "bench", "bench-leftover", failure);
    if (!store) {
        std::fprintf(stderr, "bench-leftover: %s\n", failure.message.c_str());
        return 2;
    }
    const std::uint32_t slot = acquire_slot(*store, status, argv[2]);
    std::unique_ptr<Writer> writers[ranks];
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        writers[rank] = std::make_unique<Writer>(*store, rank);
    for (std::uint64_t k = 0; k < extents; ++k) {
        Writer& writer = *writers[k % ranks];
        std::uint64_t ring_offset = 0;
        char* to = writer.reserve(bytes, 1, ring_offset);
        if (!to) return 2;
        writer.begin_write();
        std::memset(to, static_cast<int>(k % 255 + 1), bytes);
        Record record{};
        record.file = slot;
        record.generation = store->file(slot).generation;
        record.kind = static_cast<std::uint64_t>(RecordKind::data);
        record.begin = k * multiplier % extents * bytes;
        record.length = bytes;
        record.stride = bytes;
        record.count = 1;
        writer.publish(&record, 1, ring_offset, bytes);
    }
    store->superblock().phase = Phase::active;
    std::printf("%s\n", store->path().c_str());
    std::fflush(stdout);
    std::_Exit(0);  // without draining
}
