// Durability cases with files that each rank opens by itself (MPI_COMM_SELF), so that the nodes do
// not learn of each other by the open. After close and a barrier every open, through any
// communicator, has the size and the bytes of all ranks.
#include <unistd.h>

#include <algorithm>
#include <string>

#include "durability/durability.hpp"

namespace {

constexpr int ints = 512;  // of a rank
constexpr int rounds = 6;

using Values = std::vector<int>;

MPI_File open_alone(const char* name, int mode = read_write_create) {
    return open_file(name, mode, MPI_COMM_SELF);
}

void write_part(MPI_File file, int part, int value) {
    const Values values(ints, value);
    EXPECT(MPI_File_write_at(file, MPI_Offset{part} * ints * 4, values.data(), ints, MPI_INT,
                             MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

void write_alone(const char* name, int part, int value) {
    MPI_File file = open_alone(name);
    write_part(file, part, value);
    close_file(file);
}

void expect_content(MPI_File file, const Values& expected) {
    const int count = static_cast<int>(expected.size());
    MPI_Offset bytes = -1;
    EXPECT(MPI_File_get_size(file, &bytes) == MPI_SUCCESS && bytes == MPI_Offset{count} * 4);
    Values values(expected.size(), -1);
    MPI_Status status;
    EXPECT(MPI_File_read_at(file, 0, values.data(), count, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == count && values == expected);
}

// Every rank reads the file: through a handle of its own, and through one of all ranks.
void expect_everywhere(const char* name, const Values& expected) {
    barrier();
    for (const MPI_Comm comm : {MPI_COMM_SELF, MPI_COMM_WORLD}) {
        MPI_File file = open_file(name, MPI_MODE_RDONLY, comm);
        expect_content(file, expected);
        close_file(file);
        barrier();
    }
}

Values parts(const std::vector<int>& values) {
    Values result;
    for (const int value : values) result.insert(result.end(), ints, value);
    return result;
}

// Each rank writes its part, and in each round the file becomes longer.
void own_parts() {
    std::vector<int> expected;
    for (int round = 0; round < rounds; ++round) {
        write_alone("parts", round * size + rank, round * size + rank + 1);
        for (int other = 0; other < size; ++other) expected.push_back(round * size + other + 1);
        expect_everywhere("parts", parts(expected));
    }
}

// The ranks overwrite the same bytes in turn. `keeps_open`: each has a handle all the time through
// which it has written and synchronized the first version.
void overwritten_in_turn(bool keeps_open) {
    MPI_File kept = MPI_FILE_NULL;
    if (keeps_open) {
        kept = open_alone("turns");
        for (int turn = 0; turn < size; ++turn) {
            if (turn == rank) write_part(kept, 0, 1);
            if (turn == rank) EXPECT(MPI_File_sync(kept) == MPI_SUCCESS);
            barrier();
        }
    }
    for (int turn = 0; turn < rounds; ++turn) {
        if (turn % size == rank) write_alone("turns", 0, 10 + turn);
        barrier();
        if (keeps_open) expect_content(kept, Values(ints, 10 + turn));
        MPI_File file = open_alone("turns");
        expect_content(file, Values(ints, 10 + turn));
        close_file(file);
        barrier();
    }
    if (keeps_open) close_file(kept);
    expect_everywhere("turns", Values(ints, 10 + rounds - 1));
}
void overwritten() { overwritten_in_turn(false); }
void overwritten_beside_handles() { overwritten_in_turn(true); }

// All ranks write together and close; then one writes by itself, and another one reads first.
void after_all() {
    std::vector<int> expected(static_cast<std::size_t>(size));
    for (int round = 0; round < rounds; ++round) {
        MPI_File file = open_file("after");
        write_part(file, rank, 100 * round + rank);
        close_file(file);
        barrier();
        for (int k = 0; k < size; ++k) expected[static_cast<std::size_t>(k)] = 100 * round + k;
        if (rank == (round + 1) % size) write_alone("after", round % size, 7 + 100 * round);
        expected[static_cast<std::size_t>(round % size)] = 7 + 100 * round;
        expect_everywhere("after", parts(expected));
    }
}

// One rank cuts the file that all have written, or that each has written by itself, and another one
// makes it longer again.
void cut(bool alone, bool keeps_open) {
    for (int round = 0; round < rounds; ++round) {
        MPI_File file = MPI_FILE_NULL, kept = keeps_open ? open_alone("cut") : MPI_FILE_NULL;
        if (alone) {
            write_alone("cut", rank, round + 1);
        } else {
            file = open_file("cut");
            write_part(file, rank, round + 1);
            close_file(file);
        }
        barrier();
        if (rank == round % size) {
            file = open_alone("cut");
            EXPECT(MPI_File_set_size(file, ints * 2) == MPI_SUCCESS);
            close_file(file);
        }
        barrier();
        expect_everywhere("cut", Values(ints / 2, round + 1));
        if (keeps_open) expect_content(kept, Values(ints / 2, round + 1));
        barrier();
        if (rank == (round + 1) % size) write_alone("cut", size, 50);
        Values expected(static_cast<std::size_t>(size + 1) * ints, 0);
        std::fill_n(expected.begin(), ints / 2, round + 1);
        std::fill(expected.end() - ints, expected.end(), 50);
        expect_everywhere("cut", expected);
        if (keeps_open) close_file(kept);
        barrier();
        on_first_rank([] { unlink(path("cut").c_str()); });
    }
}
void cut_after_all() { cut(false, false); }
void cut_by_one() { cut(true, false); }
void cut_beside_handles() { cut(false, true); }

}  // namespace

const std::vector<Case> alone_cases = {{"alone-own-parts", own_parts},
                                       {"alone-overwritten", overwritten},
                                       {"alone-beside-handles", overwritten_beside_handles},
                                       {"alone-after-all", after_all},
                                       {"alone-cut-after-all", cut_after_all},
                                       {"alone-cut", cut_by_one},
                                       {"alone-cut-beside-handles", cut_beside_handles}};
