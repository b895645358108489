// Snapshots of the concentration u. They are written in one of RDBench's three ways, and read back,
// untimed, with another distribution over the ranks.
#pragma once

#include "storage/reaction_diffusion/tile.hpp"

namespace assay::storage {

// manual: each rank writes row by row; view: one call with a file view; chunk: tile after tile.
enum class IoType { manual, view, chunk };

struct SnapshotSettings {
    std::string prefix;
    IoType type;
    bool collective, sync;
};

// RDBench's file name: prefix, size of the square, size of a tile, number.
std::string snapshot_file(const SnapshotSettings& settings, const Layout& layout,
                          std::int64_t number);

// Collective: opens, writes and closes the file.
void write_snapshot(Ranks& ranks, const Tile& tile, const SnapshotSettings& settings,
                    const std::string& file);

// Collective: the sum over all cells of a hash of index and value. It does not depend on the tiles,
// and it changes if two cells are exchanged.
std::uint64_t digest_of_tiles(Ranks& ranks, const Tile& tile);
std::uint64_t digest_of_file(Ranks& ranks, const Layout& layout, const SnapshotSettings& settings,
                             const std::string& file);

}  // namespace assay::storage
