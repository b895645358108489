// Writes snapshots through MPI-IO, and computes digests of the ranks' tiles and of a snapshot file.
#include "storage/reaction_diffusion/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/pattern.hpp"

namespace assay::storage {
namespace {

constexpr std::uint64_t cells_per_read = 1 << 18;  // cells

std::uint64_t hash(std::uint64_t cell, double value) {
    return stamp_key(0, 0, stamp_key(0, 0, cell) ^ std::bit_cast<std::uint64_t>(value));
}

std::uint64_t global_sum(Ranks& ranks, std::uint64_t local) {
    std::uint64_t sum[] = {local};  // modulo 2^64
    ranks.allreduce_sum(sum);
    return sum[0];
}

}  // namespace

std::string snapshot_file(const SnapshotSettings& settings, const Layout& layout,
                          std::int64_t number) {
    return fmt::format("{}{}x{}-{}x{}-{:06}.bin", settings.prefix, layout.length, layout.length,
                       layout.width(), layout.height(), number);
}

void write_snapshot(Ranks& ranks, const Tile& tile, const SnapshotSettings& settings,
                    const std::string& path) {
    const Layout& layout = tile.layout;
    MpiFile file(ranks, MPI_COMM_WORLD, path,
                 MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_UNIQUE_OPEN);
    const auto write_cells = [&](MPI_Offset offset, const double* data, int count,
                                 MPI_Datatype type) {
        const int status = ranks.guarded("writes a snapshot", [&] {
            return settings.collective ? MPI_File_write_at_all(file.handle(), offset, data, count,
                                                               type, MPI_STATUS_IGNORE)
                                       : MPI_File_write_at(file.handle(), offset, data, count, type,
                                                           MPI_STATUS_IGNORE);
        });
        ranks.check(status, "write", path);
    };
    constexpr MPI_Offset cell = sizeof(double);
    const MPI_Offset w = layout.width(), h = layout.height(), edge = layout.length;
    switch (settings.type) {
        case IoType::manual:
            for (int y = 0; y < h; ++y)
                write_cells(cell * ((tile.y0() + y) * edge + tile.x0()), &tile.u[tile.index(0, y)],
                            layout.width(), MPI_DOUBLE);
            break;
        case IoType::view:
            ranks.check(MPI_File_set_view(file.handle(), 0, MPI_DOUBLE, tile.in_file(), "native",
                                          MPI_INFO_NULL),
                        "set the view of", path);
            write_cells(0, tile.u.data(), 1, tile.in_memory());
            break;
        case IoType::chunk:
            write_cells(cell * w * h * ranks.rank(), tile.u.data(), 1, tile.in_memory());
            break;
    }
    if (settings.sync) file.sync();
    file.close();
}

std::uint64_t digest_of_tiles(Ranks& ranks, const Tile& tile) {
    std::uint64_t sum = 0;
    for (int y = 0; y < tile.layout.height(); ++y)
        for (int x = 0; x < tile.layout.width(); ++x) {
            const auto cell = static_cast<std::uint64_t>(tile.y0() + y) *
                                  static_cast<std::uint64_t>(tile.layout.length) +
                              static_cast<std::uint64_t>(tile.x0() + x);
            sum += hash(cell, tile.u[tile.index(x, y)]);
        }
    return global_sum(ranks, sum);
}

std::uint64_t digest_of_file(Ranks& ranks, const Layout& layout, const SnapshotSettings& settings,
                             const std::string& path) {
    const auto cells =
        static_cast<std::uint64_t>(layout.length) * static_cast<std::uint64_t>(layout.length);
    const auto share = [&](int rank) {
        return cells * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks.size());
    };
    MpiFile file(ranks, MPI_COMM_WORLD, path, MPI_MODE_RDONLY);
    std::vector<double> values(cells_per_read);
    std::uint64_t sum = 0;
    // The parts are read in reverse order of ranks, so that most of a part was written by other
    // ranks.
    const int local = ranks.size() - 1 - ranks.rank();
    for (std::uint64_t first = share(local); first < share(local + 1);) {
        const std::uint64_t count = std::min(cells_per_read, share(local + 1) - first);
        std::ranges::fill(values, -1.0);
        const int status = ranks.guarded("reads a snapshot", [&] {
            return MPI_File_read_at(
                file.handle(), static_cast<MPI_Offset>(first) * MPI_Offset{sizeof(double)},
                values.data(), static_cast<int>(count), MPI_DOUBLE, MPI_STATUS_IGNORE);
        });
        ranks.check(status, "read", path);
        for (std::uint64_t k = 0; k < count; ++k)
            sum +=
                hash(settings.type == IoType::chunk ? layout.cell_of_chunk(first + k) : first + k,
                     values[k]);
        first += count;
    }
    file.close();
    return global_sum(ranks, sum);
}

}  // namespace assay::storage
