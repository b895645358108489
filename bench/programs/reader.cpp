// Rate of reading another rank's data. Rank 1 writes a file, rank 0 reads it sequentially.
// Meanwhile rank 1 computes and rarely calls MPI, so MPI makes no progress there. Prints bytes/s,
// or 0 if the data are wrong.
//
//   bench-reader-MPI FILE TRANSFER TOTAL    (TRANSFER, TOTAL: bytes)
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int transfer = std::atoi(argv[2]);
    const MPI_Offset total = std::atoll(argv[3]);
    std::vector<unsigned char> bytes(static_cast<std::size_t>(transfer));
    const auto expected_byte = [](MPI_Offset offset) {
        return static_cast<unsigned char>(offset / 4096 % 251);
    };
    MPI_File file;
    if (const int code = MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR,
                                       MPI_INFO_NULL, &file)) {
        char reason[MPI_MAX_ERROR_STRING];
        int length = 0;
        MPI_Error_string(code, reason, &length);
        std::fprintf(stderr, "%s: %s\n", argv[1], reason);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (MPI_Offset offset = 0; rank == 1 && offset < total; offset += transfer) {
        for (int k = 0; k < transfer; ++k)
            bytes[static_cast<std::size_t>(k)] = expected_byte(offset + k);
        MPI_File_write_at(file, offset, bytes.data(), transfer, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        const double start = MPI_Wtime();
        long wrong_bytes = 0;
        double seconds = 0;
        for (MPI_Offset offset = 0; offset < total; offset += transfer) {
            MPI_File_read_at(file, offset, bytes.data(), transfer, MPI_BYTE, MPI_STATUS_IGNORE);
            seconds = MPI_Wtime() - start;
            for (int k = 0; k < transfer; k += 512)
                wrong_bytes += bytes[static_cast<std::size_t>(k)] != expected_byte(offset + k);
        }
        if (wrong_bytes) std::fprintf(stderr, "%ld wrong bytes\n", wrong_bytes);
        std::printf("%.0f\n", wrong_bytes ? 0 : static_cast<double>(total) / seconds);
        std::fflush(stdout);
        const int done = 1;
        MPI_Send(&done, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        // Computes in pieces until rank 0 has finished, which it checks between the pieces.
        volatile double sum = 0;
        for (int finished = 0; !finished;) {
            for (int k = 0; k < 400'000'000; ++k) sum = sum + k;
            MPI_Iprobe(0, 0, MPI_COMM_WORLD, &finished, MPI_STATUS_IGNORE);
        }
        int done = 0;
        MPI_Recv(&done, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
