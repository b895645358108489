// The Gray-Scott solver on one tile. Every cell is computed by the same operations in the same
// order, wherever the borders of its tile are, and CMake forbids fused operations
// (-ffp-contract=off). So snapshots of the same square are equal to the last bit.
#include "storage/reaction_diffusion/tile.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace assay::storage {
namespace {

// RDBench's system: feed and kill rate, time step, diffusion of u and v.
constexpr double feed = 0.04, kill = 0.06075, dt = 0.2, diffusion_u = 0.05, diffusion_v = 0.1;

// Initial state: squares in the middle with these half edges.
constexpr int half_u = 3, half_v = 6;
constexpr double initial_u = 0.7, initial_v = 0.9;

bool within(int coordinate, int length, int half) {
    return coordinate >= length / 2 - half && coordinate < length / 2 + half;
}

}  // namespace

std::uint64_t Layout::cell_of_chunk(std::uint64_t chunk_index) const {
    const auto w = static_cast<std::uint64_t>(width()), h = static_cast<std::uint64_t>(height());
    const std::uint64_t tile = chunk_index / (w * h), index_in_tile = chunk_index % (w * h);
    const std::uint64_t x = tile % static_cast<std::uint64_t>(xnp) * w + index_in_tile % w;
    const std::uint64_t y = tile / static_cast<std::uint64_t>(xnp) * h + index_in_tile / w;
    return y * static_cast<std::uint64_t>(length) + x;
}

Layout make_layout(int length, int xnp, int ynp, int ranks) {
    int dims[2] = {ynp, xnp};  // 0: MPI_Dims_create chooses it
    const int fixed_ranks = (xnp ? xnp : 1) * (ynp ? ynp : 1);
    if (ranks % fixed_ranks || (xnp && ynp && fixed_ranks != ranks))
        throw Error(fmt::format("--xnp {} and --ynp {} do not divide {} ranks", xnp, ynp, ranks),
                    "their product must be the number of ranks; 0 leaves one of them open");
    MPI_Dims_create(ranks, 2, dims);
    if (length % dims[0] || length % dims[1])
        throw Error(fmt::format("an edge of {} cells cannot be divided over {} x {} ranks", length,
                                dims[1], dims[0]),
                    "choose a --length that both divide, or other --xnp and --ynp");
    return {length, dims[1], dims[0]};
}

Tile::Tile(Ranks& ranks, const Layout& layout_)
    : layout(layout_),
      ranks_(ranks),
      column_(ranks.rank() % layout_.xnp),
      row_(ranks.rank() / layout_.xnp) {
    const int w = layout.width(), h = layout.height();
    for (Cells* cells : {&u, &v, &next_u_, &next_v_}) cells->assign(cells_with_halo(), 0.0);
    for (int y = 0; y < h; ++y)
        for (int x = 0; x < w; ++x) {
            const auto in_middle_square = [&](int half) {
                return within(x0() + x, layout.length, half) &&
                       within(y0() + y, layout.length, half);
            };
            if (in_middle_square(half_u)) u[index(x, y)] = initial_u;
            if (in_middle_square(half_v)) v[index(x, y)] = initial_v;
        }
    MPI_Type_vector(h, 1, w + 2, MPI_DOUBLE, &side_);
    const int with_halo[] = {h + 2, w + 2}, inner[] = {h, w}, corner[] = {1, 1};
    MPI_Type_create_subarray(2, with_halo, inner, corner, MPI_ORDER_C, MPI_DOUBLE, &in_memory_);
    const int global_shape[] = {layout.length, layout.length}, begin[] = {y0(), x0()};
    MPI_Type_create_subarray(2, global_shape, inner, begin, MPI_ORDER_C, MPI_DOUBLE, &in_file_);
    for (MPI_Datatype* type : {&side_, &in_memory_, &in_file_}) MPI_Type_commit(type);
}

Tile::~Tile() {
    for (MPI_Datatype* type : {&side_, &in_memory_, &in_file_}) MPI_Type_free(type);
}

int Tile::rank_of(int column, int row) const {
    return (row + layout.ynp) % layout.ynp * layout.xnp + (column + layout.xnp) % layout.xnp;
}

void Tile::exchange_halos() {
    ranks_.guarded("waits for a neighbour's halo", [&] {
        exchange(u);
        exchange(v);
    });
}

void Tile::exchange(Cells& cells) {
    const int w = layout.width(), h = layout.height();
    const int left = rank_of(column_ - 1, row_), right = rank_of(column_ + 1, row_);
    const int up = rank_of(column_, row_ - 1), down = rank_of(column_, row_ + 1);
    const auto send_and_receive = [&](int count, MPI_Datatype type, std::size_t send_offset, int to,
                                      std::size_t receive_offset, int source, int tag) {
        MPI_Sendrecv(&cells[send_offset], count, type, to, tag, &cells[receive_offset], count, type,
                     source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    send_and_receive(w, MPI_DOUBLE, index(0, 0), up, index(0, h), down, 0);
    send_and_receive(w, MPI_DOUBLE, index(0, h - 1), down, index(0, -1), up, 1);
    send_and_receive(1, side_, index(0, 0), left, index(w, 0), right, 2);
    send_and_receive(1, side_, index(w - 1, 0), right, index(-1, 0), left, 3);
}

void Tile::step() {
    const std::size_t row = index(0, 1) - index(0, 0);
    const auto laplacian = [row](const double* s, std::size_t i) {
        return s[i - 1] + s[i + 1] + s[i - row] + s[i + row] - 4.0 * s[i];
    };
    const double *const old_u = u.data(), *const old_v = v.data();
    double *const new_u = next_u_.data(), *const new_v = next_v_.data();
    for (int y = 0; y < layout.height(); ++y) {
        const std::size_t begin = index(0, y), end = index(layout.width(), y);
        for (std::size_t i = begin; i < end; ++i) {
            const double a = old_u[i], b = old_v[i];
            const double du = diffusion_u * laplacian(old_u, i) + (a * a * b - (feed + kill) * a);
            const double dv = diffusion_v * laplacian(old_v, i) + (-a * a * b + feed * (1.0 - b));
            new_u[i] = a + du * dt;
            new_v[i] = b + dv * dt;
        }
    }
    u.swap(next_u_);
    v.swap(next_v_);
}

}  // namespace assay::storage
