/* A program with the phases of many: on a torus of ranks it exchanges halos, relaxes its part of a
 * grid, adds up the residual, and transposes by an all-to-all. Arguments: iterations, sweeps of the
 * grid in each. Rank 0 prints the seconds of an iteration: the mean of all after the first three.
 * Prints the residual too, so that nothing is optimised away. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ROWS = 64,
    COLUMNS = 2048,
    HALO = 4 * COLUMNS,
    BLOCK = 16384,
    WARM_UP = 3,
    NEIGHBOURS = 4
}; /* doubles */

static double grid[2][ROWS][COLUMNS], edges[NEIGHBOURS][HALO], halos[NEIGHBOURS][HALO];

static void exchange(MPI_Comm torus, const int* neighbours) {
    MPI_Request requests[2 * NEIGHBOURS];
    for (int side = 0; side < NEIGHBOURS; side++) {
        const int opposite = side ^ 1;
        MPI_Irecv(halos[side], HALO, MPI_DOUBLE, neighbours[side], opposite, torus,
                  &requests[side]);
    }
    for (int side = 0; side < NEIGHBOURS; side++)
        MPI_Isend(edges[side], HALO, MPI_DOUBLE, neighbours[side], side, torus,
                  &requests[NEIGHBOURS + side]);
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
}

static double relax(int sweeps) {
    double residual = 0;
    for (int sweep = 0; sweep < sweeps; sweep++) {
        double (*from)[COLUMNS] = grid[sweep % 2], (*to)[COLUMNS] = grid[(sweep + 1) % 2];
        residual = 0;
        for (int row = 1; row < ROWS - 1; row++)
            for (int column = 1; column < COLUMNS - 1; column++) {
                const double mean = 0.25 * (from[row - 1][column] + from[row + 1][column] +
                                            from[row][column - 1] + from[row][column + 1]);
                residual += (mean - from[row][column]) * (mean - from[row][column]);
                to[row][column] = mean;
            }
    }
    return residual;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const int iterations = argc > 1 ? atoi(argv[1]) : 20, sweeps = argc > 2 ? atoi(argv[2]) : 20;
    int ranks = 0, rank = 0, extent[2] = {0, 0}, neighbours[NEIGHBOURS];
    const int periodic[2] = {1, 1};
    MPI_Comm torus;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, extent);
    MPI_Cart_create(MPI_COMM_WORLD, 2, extent, periodic, 0, &torus);
    MPI_Comm_rank(torus, &rank);
    for (int dimension = 0; dimension < 2; dimension++)
        MPI_Cart_shift(torus, dimension, 1, &neighbours[2 * dimension],
                       &neighbours[2 * dimension + 1]);
    double *sent = calloc((size_t)ranks * BLOCK, sizeof *sent),
           *received = calloc((size_t)ranks * BLOCK, sizeof *sent);
    double begun = 0, residual = 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            grid[0][row][column] = (row * 31 + column * 17 + rank) % 97;
    for (int iteration = 0; iteration < WARM_UP + iterations; iteration++) {
        if (iteration == WARM_UP) {
            MPI_Barrier(torus);
            begun = MPI_Wtime();
        }
        exchange(torus, neighbours);
        const double own = relax(sweeps);
        MPI_Allreduce(&own, &residual, 1, MPI_DOUBLE, MPI_SUM, torus);
        MPI_Alltoall(sent, BLOCK, MPI_DOUBLE, received, BLOCK, MPI_DOUBLE, torus);
    }
    MPI_Barrier(torus);
    if (rank == 0)
        printf("seconds %.6f residual %g\n", (MPI_Wtime() - begun) / iterations, residual);
    MPI_Finalize();
    return 0;
}
