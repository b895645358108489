// A rank's tile of the square, with a halo of one cell, and the arrangement of the tiles.
#pragma once

#include <vector>

#include "storage/ranks/ranks.hpp"

namespace assay::storage {

// The division of the square into xnp x ynp tiles, one per rank, row by row in the order of ranks.
// Lengths are in cells.
struct Layout {
    int length, xnp, ynp;
    int width() const { return length / xnp; }
    int height() const { return length / ynp; }
    // The index of a cell in row-by-row order of the square, from its index in tile-by-tile order.
    std::uint64_t cell_of_chunk(std::uint64_t chunk_index) const;
};

// Throws Error if the tiles would not be equal.
Layout make_layout(int length, int xnp, int ynp, int ranks);

using Cells = std::vector<double>;

class Tile {
public:
    Tile(Ranks& ranks, const Layout& layout);
    ~Tile();
    Tile(const Tile&) = delete;
    Tile& operator=(const Tile&) = delete;

    const Layout layout;
    int x0() const { return column_ * layout.width(); }
    int y0() const { return row_ * layout.height(); }
    // The index of a cell in `u` and `v`; x from -1 to the width, y from -1 to the height.
    std::size_t index(int x, int y) const {
        return static_cast<std::size_t>(y + 1) * static_cast<std::size_t>(layout.width() + 2) +
               static_cast<std::size_t>(x + 1);
    }
    std::size_t cells_with_halo() const { return index(layout.width(), layout.height()) + 1; }

    Cells u, v;  // the two concentrations, row by row, with the halo
    void exchange_halos();
    void step();  // one time step; the halos must be exchanged before

    // Datatypes of the inner cells: in the array with its halo, and in the file.
    MPI_Datatype in_memory() const { return in_memory_; }
    MPI_Datatype in_file() const { return in_file_; }

private:
    void exchange(Cells& cells);
    int rank_of(int column, int row) const;

    Ranks& ranks_;
    int column_, row_;
    Cells next_u_, next_v_;
    MPI_Datatype side_ = MPI_DATATYPE_NULL, in_memory_ = MPI_DATATYPE_NULL,
                 in_file_ = MPI_DATATYPE_NULL;
};

}  // namespace assay::storage
