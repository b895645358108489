#include "mpiio/together.hpp"

#include <unistd.h>

#include <algorithm>

namespace {

// One after the other: who has the token reads what the one before wrote, and writes over a part of it.
void told_by_a_message() {
    constexpr int n = 1000, rounds = 150;
    MPI_File file = opened("message");
    std::vector<int> expected(n, -1), read(n);
    for (int turn = 0; turn < rounds; ++turn) {
        const int begin = turn * 37 % (n / 2), length = turn ? n / 2 - turn % 7 : n;
        if (turn % size == rank) {
            if (turn) {
                MPI_Recv(expected.data(), n, MPI_INT, (turn - 1) % size, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
                EXPECT(read == expected);
            }
            const std::vector<int> mine(static_cast<std::size_t>(length), turn);
            MPI_File_write_at(file, (turn ? begin : 0) * 4, mine.data(), length, MPI_INT, MPI_STATUS_IGNORE);
            std::copy(mine.begin(), mine.end(), expected.begin() + (turn ? begin : 0));
            if (turn + 1 < rounds) MPI_Send(expected.data(), n, MPI_INT, (turn + 1) % size, turn + 1, MPI_COMM_WORLD);
        }
    }
    MPI_Bcast(expected.data(), n, MPI_INT, (rounds - 1) % size, MPI_COMM_WORLD);
    MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == expected);
    MPI_File_close(&file);
    EXPECT(on_disk("message") == expected);
}

// All write, all pass a barrier, all read all; and every block is another rank's in the next round.
void told_by_a_barrier() {
    constexpr int n = 300, rounds = 40;
    MPI_File file = opened("barrier");
    std::vector<int> expected(static_cast<std::size_t>(n * size)), read(expected.size());
    for (int round = 0; round < rounds; ++round) {
        const int block = (rank + round) % size;
        const std::vector<int> mine(n, round * size + rank);
        MPI_File_write_at(file, block * n * 4, mine.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int k = 0; k < size; ++k)
            std::fill_n(expected.begin() + (k + round) % size * n, n, round * size + k);
        MPI_File_read_at(file, 0, read.data(), n * size, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(read == expected);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    EXPECT(on_disk("barrier") == expected);
}

// The same bytes by one rank after the other, in patterns that overlap; nobody reads before the file is closed.
void written_over_unread() {
    constexpr int n = 4000, rounds = 30;
    MPI_File file = opened("unread");
    std::vector<int> expected(n, 0);
    for (int turn = 0; turn < rounds * size; ++turn) {
        const int stride = 3 + turn % 5, first = turn * 11 % 50, count = (n - 2 - first) / stride;
        if (turn % size == rank) {
            const int two[] = {turn, turn};
            for (int k = 0; k < count; ++k)
                MPI_File_write_at(file, (first + k * stride) * 4, two, 2, MPI_INT, MPI_STATUS_IGNORE);
        }
        for (int k = 0; k < count; ++k)
            for (int at = first + k * stride; at < first + k * stride + 2; ++at) expected[static_cast<std::size_t>(at)] = turn;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    auto whole = on_disk("unread");
    whole.resize(n);
    EXPECT(whole == expected);
}

// How long the file is by now, and how long after it was cut.
void lengths() {
    MPI_File file = opened("lengths");
    for (int turn = 0; turn < 3 * size; ++turn) {
        if (turn % size == rank) MPI_File_write_at(file, turn * 100 * 4, &turn, 1, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Offset bytes = -1;
        MPI_File_get_size(file, &bytes);
        EXPECT(bytes == turn * 400 + 4);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_set_size(file, 1000);
    MPI_Offset bytes = -1;
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 1000);
    MPI_Barrier(MPI_COMM_WORLD);
    const int value = 7;
    if (rank == size - 1) MPI_File_write_at(file, 2000, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<int> read(501, -1);
    MPI_Status status;
    MPI_File_read_at(file, 0, read.data(), 501, MPI_INT, &status);
    EXPECT(count_of(status) == 501 && read[500] == 7 && read[400] == 0 && read[0] == 0 && read[100] == 1 && read[300] == 0);
    MPI_File_close(&file);
}

// A block that one rank wrote, and another after it, who then writes more than a store holds: what gives way there must
// not bring the older one back, for whoever never looked before.
void gone_from_the_store() {
    constexpr int n = 2000, much = 4 << 20, calls = 12;  // 192 MiB
    if (size < 2) return;
    MPI_File file = opened("gone");
    std::vector<int> block(n, 1), more(much, 3), read(n);
    int token = 0;
    if (rank == 1) {
        MPI_File_write_at(file, 0, block.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 1; k < n; k += 2) MPI_File_write_at(file, k * 4, &k, 1, MPI_INT, MPI_STATUS_IGNORE);
        for (int k = 0; k < calls; ++k)
            EXPECT(MPI_File_write_at(file, 1 << 20, more.data(), much, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 1; k < n; k += 2) block[static_cast<std::size_t>(k)] = k;
    MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == block);
    MPI_File_close(&file);
    auto whole = on_disk("gone");
    whole.resize(n);
    EXPECT(whole == block);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path("gone").c_str());
}

}  // namespace

const std::vector<Case> together = {{"told-by-a-message", told_by_a_message}, {"told-by-a-barrier", told_by_a_barrier},
                                    {"written-over-unread", written_over_unread}, {"lengths", lengths},
                                    {"gone-from-the-store", gone_from_the_store}};
