// A preloaded library that simulates faults of MPI-IO. Tests check that the benchmarks find them.
// Environment variables select the faults:
//
//     PLANTED_SLOW=RANK:MICROSECONDS   each read and write of RANK takes that much longer
//     PLANTED_FLIP=OFFSET              a write that covers the file's byte OFFSET flips a bit of it
//     PLANTED_STALL=RANK               the first write of RANK never returns
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

int rank() {
    int result = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &result);
    return result;
}

// Spins, because a sleep would give the rank's processor to the other ranks.
void delay_if_planted() {
    static const char* const planted = std::getenv("PLANTED_SLOW");
    static const bool applies = planted && std::atoi(planted) == rank();
    if (!applies) return;
    static const double seconds = std::atof(std::strchr(planted, ':') + 1) * 1e-6;
    const double begin = MPI_Wtime();
    while (MPI_Wtime() - begin < seconds) {
    }
}

void stall_if_planted() {
    static const char* const planted = std::getenv("PLANTED_STALL");
    if (planted && std::atoi(planted) == rank())
        for (;;) pause();
}

// Returns the data to write: `data`, or `copy` with the flipped bit if the transfer has that byte.
const void* flip_if_planted(const void* data, MPI_Offset offset, int count, MPI_Datatype type,
                            std::vector<char>& copy) {
    static const char* const planted = std::getenv("PLANTED_FLIP");
    int size = 0;
    MPI_Type_size(type, &size);
    const MPI_Offset flip_offset = planted ? std::atoll(planted) - offset : -1;
    const MPI_Offset bytes = MPI_Offset{count} * size;  // correct for contiguous types only
    if (flip_offset < 0 || flip_offset >= bytes) return data;
    copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
    copy[static_cast<std::size_t>(flip_offset)] ^= 0x10;
    return copy.data();
}

}  // namespace

extern "C" {

int MPI_File_write_at(MPI_File file, MPI_Offset offset, const void* data, int count,
                      MPI_Datatype type, MPI_Status* status) {
    std::vector<char> copy;
    stall_if_planted();
    delay_if_planted();
    return PMPI_File_write_at(file, offset, flip_if_planted(data, offset, count, type, copy), count,
                              type, status);
}

int MPI_File_read_at(MPI_File file, MPI_Offset offset, void* data, int count, MPI_Datatype type,
                     MPI_Status* status) {
    delay_if_planted();
    return PMPI_File_read_at(file, offset, data, count, type, status);
}

int MPI_File_write_at_all(MPI_File file, MPI_Offset offset, const void* data, int count,
                          MPI_Datatype type, MPI_Status* status) {
    delay_if_planted();
    return PMPI_File_write_at_all(file, offset, data, count, type, status);
}
}
