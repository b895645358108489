// MPI-IO with planted faults, preloaded before an MPI's own, which the benchmarks must find. The
// environment selects them:
//
//     PLANTED_SLOW=RANK:MICROSECONDS   delays every read and write of that rank
//     PLANTED_FLIP=OFFSET              flips a bit of the byte at that file offset when it is
//     written PLANTED_STALL=RANK               that rank's first write never returns
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
    int number = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &number);
    return number;
}

// Spins, because a sleep would give its processor to the other ranks.
void delay() {
    static const char* const planted = std::getenv("PLANTED_SLOW");
    static const bool mine = planted && std::atoi(planted) == rank();
    if (!mine) return;
    static const double wanted = std::atof(std::strchr(planted, ':') + 1) * 1e-6;
    const double begin = MPI_Wtime();
    while (MPI_Wtime() - begin < wanted) {
    }
}

void stall() {
    static const char* const planted = std::getenv("PLANTED_STALL");
    if (planted && std::atoi(planted) == rank())
        for (;;) pause();
}

// The data to write: a copy with the flipped bit if the transfer contains the byte.
const void* flipped(const void* data, MPI_Offset offset, int count, MPI_Datatype type,
                    std::vector<char>& copy) {
    static const char* const planted = std::getenv("PLANTED_FLIP");
    int size = 0;
    MPI_Type_size(type, &size);
    const MPI_Offset at = planted ? std::atoll(planted) - offset : -1;
    const MPI_Offset bytes = MPI_Offset{count} * size;  // contiguous data only
    if (at < 0 || at >= bytes) return data;
    copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
    copy[static_cast<std::size_t>(at)] ^= 0x10;
    return copy.data();
}

}  // namespace

extern "C" {

int MPI_File_write_at(MPI_File file, MPI_Offset offset, const void* data, int count,
                      MPI_Datatype type, MPI_Status* status) {
    std::vector<char> copy;
    stall();
    delay();
    return PMPI_File_write_at(file, offset, flipped(data, offset, count, type, copy), count, type,
                              status);
}

int MPI_File_read_at(MPI_File file, MPI_Offset offset, void* data, int count, MPI_Datatype type,
                     MPI_Status* status) {
    delay();
    return PMPI_File_read_at(file, offset, data, count, type, status);
}
}
