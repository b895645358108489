// Snapshots of u: written in one of RDBench's three ways, and read back, untimed, by another
// sharing-out than they were written in.
#pragma once

#include "storage/reaction_diffusion/tile.hpp"

namespace assay::storage {

enum class IoType { manual, view, chunk };

struct Writing {
    std::string prefix;
    IoType type;
    bool collective, sync;
};

// RDBench's name: PREFIX, edge, edge of a tile, number.
std::string snapshot_file(const Writing& writing, const Layout& layout, std::int64_t number);

// Collective; from opening to closing.
void write_snapshot(Ranks& ranks, const Tile& tile, const Writing& writing,
                    const std::string& file);

// A sum over all cells of a hash of each with its place: the same whatever the tiles, another where
// two cells change places. Collective.
std::uint64_t digest_of_tiles(Ranks& ranks, const Tile& tile);
std::uint64_t digest_of_file(Ranks& ranks, const Layout& layout, const Writing& writing,
                             const std::string& file);

}  // namespace assay::storage
