// Programs that read what an earlier job has written with the case "closed".
#include "durability/durability.hpp"

namespace {

// Whether this rank reads the block of every rank.
bool reads_all(MPI_File file, int version) {
    bool good = true;
    std::vector<int> values(block);
    for (int other = 0; other < size; ++other) {
        MPI_Status status;
        good &= MPI_File_read_at(file, MPI_Offset{other} * block * 4, values.data(), block, MPI_INT,
                                 &status) == MPI_SUCCESS &&
                count_of(status) == block && values == block_of(version, other);
    }
    return good;
}

void reread() {
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    EXPECT(file != MPI_FILE_NULL && reads_all(file, 1));
    if (file != MPI_FILE_NULL) close_file(file);
}

// The file has bytes of others now: its first block is one of version 7.
void reread_changed() {
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    std::vector<int> values(block);
    EXPECT(MPI_File_read_at(file, 0, values.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS &&
           values == block_of(7, 0));
    close_file(file);
}

// Another job writes over it and reads it.
void rewritten() {
    MPI_File file = open_file("data");
    EXPECT(reads_all(file, 1));
    barrier();
    write_block(file, 2);
    MPI_File_sync(file);
    barrier();
    EXPECT(reads_all(file, 2));
    close_file(file);
}

}  // namespace

const std::vector<Case> later = {
    {"reread", reread}, {"reread-changed", reread_changed}, {"rewritten", rewritten}};
