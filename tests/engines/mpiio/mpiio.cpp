// What MPI-IO promises, case by case, in the manner of MPICH's and ROMIO's suites.
//
// The same program runs with the MPI's own I/O and with the accelerator in front, for each MPI:
// what the first passes, the second must pass. Every case checks its own bytes; a line a case goes
// to standard output: "ok NAME" or "bad NAME: why".
//
//   mpiio FOLDER [promised | together | NAME]
#include "mpiio/check.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "mpiio/together.hpp"

namespace {

void explicit_offsets() {
    constexpr int n = 1000;
    MPI_File file = opened("explicit");
    MPI_Status status;
    const auto mine = filled(n, rank * n);
    EXPECT(MPI_File_write_at(file, rank * n * 4, mine.data(), n, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n);
    settle(file);
    const int other = (rank + 1) % size;
    std::vector<int> read(n);
    EXPECT(MPI_File_read_at(file, other * n * 4, read.data(), n, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n && read == filled(n, other * n));
    // Over the end: only what is there.
    EXPECT(MPI_File_read_at(file, (size * n - 10) * 4, read.data(), n, MPI_INT, &status) ==
           MPI_SUCCESS);
    EXPECT(count_of(status) == 10);
    MPI_File_close(&file);
    EXPECT(on_disk("explicit") == filled(size * n, 0));
}

void strided_view() {
    constexpr int blocks = 50, block = 7;
    MPI_File file = opened("strided");
    MPI_Datatype type;
    MPI_Type_vector(blocks, block, block * size, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, rank * block * 4, MPI_INT, type, "native", MPI_INFO_NULL);
    const auto mine = filled(blocks * block, rank * 10000);
    MPI_Status status;
    EXPECT(MPI_File_write_all(file, mine.data(), blocks * block, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == blocks * block);
    MPI_Offset position = -1, byte = -1;
    MPI_File_get_position(file, &position);
    EXPECT(position == blocks * block);
    MPI_File_get_byte_offset(file, block, &byte);
    EXPECT(byte == rank * block * 4 + block * size * 4);
    MPI_File_seek(file, 3, MPI_SEEK_SET);
    std::vector<int> read(20);
    EXPECT(MPI_File_read_all(file, read.data(), 20, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(read == filled(20, rank * 10000 + 3));
    MPI_Type_free(&type);
    MPI_File_close(&file);
    const auto whole = on_disk("strided");
    EXPECT(static_cast<int>(whole.size()) == blocks * block * size);
    for (int k = 0; k < static_cast<int>(whole.size()) && failure.empty(); ++k) {
        const int who = k / block % size, row = k / (block * size);
        EXPECT(whole[static_cast<std::size_t>(k)] == who * 10000 + row * block + k % block);
    }
}

// A matrix by rows of processes: subarray in the file, and a frame of ghosts around it in memory.
void subarrays() {
    constexpr int rows = 12, columns = 9;
    const int sizes[] = {rows * size, columns}, subsizes[] = {rows, columns},
              starts[] = {rows * rank, 0};
    const int framed[] = {rows + 2, columns + 2}, inside[] = {1, 1};
    MPI_Datatype in_file, in_memory;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &in_file);
    MPI_Type_create_subarray(2, framed, subsizes, inside, MPI_ORDER_C, MPI_INT, &in_memory);
    MPI_Type_commit(&in_file);
    MPI_Type_commit(&in_memory);
    std::vector<int> local(static_cast<std::size_t>(framed[0] * framed[1]), -1);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < columns; ++c)
            local[static_cast<std::size_t>((r + 1) * framed[1] + c + 1)] =
                (rank * rows + r) * columns + c;
    MPI_File file = opened("subarray");
    MPI_File_set_view(file, 0, MPI_INT, in_file, "native", MPI_INFO_NULL);
    EXPECT(MPI_File_write_at_all(file, 0, local.data(), 1, in_memory, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    std::vector<int> back(local.size(), -1);
    EXPECT(MPI_File_read_at_all(file, 0, back.data(), 1, in_memory, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    EXPECT(back == local);
    MPI_Type_free(&in_file);
    MPI_Type_free(&in_memory);
    MPI_File_close(&file);
    EXPECT(on_disk("subarray") == filled(rows * size * columns, 0));
}

void block_cyclic() {
    const int sizes[] = {11, 13}, distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK};
    const int arguments[] = {2, MPI_DISTRIBUTE_DFLT_DARG}, grid[] = {size, 1};
    for (const int order : {MPI_ORDER_C, MPI_ORDER_FORTRAN}) {
        MPI_Datatype type;
        MPI_Type_create_darray(size, rank, 2, sizes, distributions, arguments, grid, order, MPI_INT,
                               &type);
        MPI_Type_commit(&type);
        int bytes;
        MPI_Type_size(type, &bytes);
        MPI_File file = opened("darray");
        MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
        // What MPI itself packs with the same type from the whole is what must end where it
        // belongs.
        const auto whole = filled(sizes[0] * sizes[1], 5);
        std::vector<int> mine(static_cast<std::size_t>(bytes / 4));
        int at = 0;
        if (bytes) MPI_Pack(whole.data(), 1, type, mine.data(), bytes, &at, MPI_COMM_SELF);
        EXPECT(MPI_File_write_all(file, mine.data(), bytes / 4, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
        MPI_Type_free(&type);
        MPI_File_close(&file);
        EXPECT(on_disk("darray") == whole);
    }
}

// Memory with holes of every kind, one after the other, into a contiguous file and back.
void memory_types() {
    std::vector<MPI_Datatype> types(7);
    const int lengths[] = {3, 0, 2}, places[] = {5, 0, 1};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &types[0]);
    const MPI_Aint addresses[] = {40, 0, 8};
    MPI_Type_create_hindexed(3, lengths, addresses, MPI_INT, &types[1]);
    const int apart[] = {5, 0, 2};
    MPI_Type_create_indexed_block(3, 2, apart, MPI_SHORT, &types[2]);
    const MPI_Datatype parts[] = {MPI_DOUBLE, MPI_CHAR, MPI_SHORT};
    const int one[] = {1, 3, 2};
    const MPI_Aint offsets[] = {0, 8, 12};
    MPI_Type_create_struct(3, one, offsets, parts, &types[3]);
    MPI_Type_create_resized(MPI_INT, 0, 12, &types[4]);
    MPI_Type_create_hvector(4, 2, 24, MPI_INT, &types[5]);
    MPI_Type_dup(MPI_SHORT_INT, &types[6]);
    for (std::size_t k = 0; k < types.size(); ++k) {
        MPI_Datatype type = types[k];
        MPI_Type_commit(&type);
        int bytes;
        MPI_Aint low, extent;
        MPI_Type_size(type, &bytes);
        MPI_Type_get_extent(type, &low, &extent);
        constexpr int n = 5;
        std::vector<char> from(static_cast<std::size_t>(extent * n + 64)), back(from.size(), 99),
            packed(static_cast<std::size_t>(bytes * n));
        for (std::size_t b = 0; b < from.size(); ++b) from[b] = static_cast<char>(b * 7 + 1);
        int at = 0;
        MPI_Pack(from.data(), n, type, packed.data(), bytes * n, &at, MPI_COMM_SELF);
        const std::string name =
            "memory" + std::to_string(k);  // a name that was just deleted is still there for some
        MPI_File file = opened(name.c_str(), rdwr | MPI_MODE_DELETE_ON_CLOSE);
        const MPI_Offset place = rank * bytes * n;
        MPI_Status status;
        EXPECT(MPI_File_write_at(file, place, from.data(), n, type, &status) == MPI_SUCCESS);
        EXPECT(count_of(status, MPI_BYTE) == bytes * n);
        std::vector<char> read(packed.size());
        EXPECT(MPI_File_read_at(file, place, read.data(), bytes * n, MPI_BYTE, &status) ==
               MPI_SUCCESS);
        EXPECT(read == packed);
        EXPECT(MPI_File_read_at(file, place, back.data(), n, type, &status) == MPI_SUCCESS);
        std::vector<char> again(packed.size());
        at = 0;
        MPI_Pack(back.data(), n, type, again.data(), bytes * n, &at, MPI_COMM_SELF);
        EXPECT(again == packed);
        MPI_Type_free(&type);
        MPI_File_close(&file);
        if (!failure.empty() && failure.find("type") == std::string::npos)
            failure += ", of type " + std::to_string(k);
    }
}

void shared_pointer() {
    constexpr int n = 16, rounds = 20;
    MPI_File file = opened("shared");
    for (int round = 0; round < rounds; ++round) {
        const std::vector<int> mine(n, rank * rounds + round);
        EXPECT(MPI_File_write_shared(file, mine.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset position;
    MPI_File_get_position_shared(file, &position);
    EXPECT(position == n * rounds * size * 4);  // etypes are bytes
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    std::vector<int> ordered(n);
    EXPECT(MPI_File_read_ordered(file, ordered.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    MPI_File_close(&file);
    // Every block is whole and every block is there once.
    const auto whole = on_disk("shared");
    std::vector<int> seen(static_cast<std::size_t>(rounds * size));
    EXPECT(static_cast<int>(whole.size()) == n * rounds * size);
    for (std::size_t k = 0; k < whole.size() && failure.empty(); ++k) {
        EXPECT(whole[k] == whole[k / n * n]);
        if (k % n == 0 && whole[k] >= 0 && whole[k] < rounds * size)
            ++seen[static_cast<std::size_t>(whole[k])];
    }
    EXPECT(seen == std::vector<int>(seen.size(), 1));
    EXPECT(ordered == std::vector<int>(whole.begin() + rank * n, whole.begin() + (rank + 1) * n));
}

void ordered_and_split() {
    const int n = 10 + rank;  // each another length
    MPI_File file = opened("ordered");
    int before = 0;
    for (int k = 0; k < rank; ++k) before += 10 + k;
    int all = 0;
    for (int k = 0; k < size; ++k) all += 10 + k;
    const auto first = filled(n, before), second = filled(n, all + before);
    EXPECT(MPI_File_write_ordered(file, first.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    EXPECT(MPI_File_write_ordered_begin(file, second.data(), n, MPI_INT) == MPI_SUCCESS);
    MPI_Status status;
    EXPECT(MPI_File_write_ordered_end(file, second.data(), &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n);
    settle(file);
    std::vector<int> read(5);
    EXPECT(MPI_File_read_at_all_begin(file, 0, read.data(), 5, MPI_INT) == MPI_SUCCESS);
    EXPECT(MPI_File_read_at_all_end(file, read.data(), &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == 5 && read == filled(5, 0));
    MPI_File_close(&file);
    EXPECT(on_disk("ordered") == filled(2 * all, 0));
}

void nonblocking() {
    constexpr int n = 500, requests = 8;
    MPI_File file = opened("nonblocking");
    std::vector<std::vector<int>> parts;
    std::vector<MPI_Request> wait(requests);
    for (int k = 0; k < requests; ++k) parts.push_back(filled(n, (rank * requests + k) * n));
    for (std::size_t k = 0; k < requests; ++k) {
        const auto at = (rank * requests + static_cast<int>(k)) * n * 4;
        EXPECT(MPI_File_iwrite_at(file, at, parts[k].data(), n, MPI_INT, &wait[k]) == MPI_SUCCESS);
    }
    std::vector<MPI_Status> statuses(requests);
    EXPECT(MPI_Waitall(requests, wait.data(), statuses.data()) == MPI_SUCCESS);
    for (auto& status : statuses) EXPECT(count_of(status) == n);
    settle(file);
    MPI_Request one;
    MPI_Status status;
    std::vector<int> read(n);
    const int other = (rank + 1) % size;
    EXPECT(MPI_File_iread_at(file, other * requests * n * 4, read.data(), n, MPI_INT, &one) ==
           MPI_SUCCESS);
    EXPECT(MPI_Wait(&one, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n && read == filled(n, other * requests * n));
    MPI_File_close(&file);
    EXPECT(on_disk("nonblocking") == filled(size * requests * n, 0));
}

void sizes() {
    MPI_File file = opened("sizes");
    MPI_Offset bytes = -1;
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto mine = filled(100, rank * 100);
    MPI_File_write_at_all(file, rank * 400, mine.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
    settle(file);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 400 * size);
    EXPECT(MPI_File_set_size(file, 120) == MPI_SUCCESS);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 120);
    // What was cut off does not come back.
    EXPECT(MPI_File_set_size(file, 800) == MPI_SUCCESS);
    std::vector<int> read(200, -1);
    MPI_Status status;
    MPI_File_read_at_all(file, 0, read.data(), 200, MPI_INT, &status);
    auto expected = filled(200, 0);
    std::fill(expected.begin() + 30, expected.end(), 0);
    EXPECT(count_of(status) == 200 && read == expected);
    EXPECT(MPI_File_preallocate(file, 1200) == MPI_SUCCESS);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 1200);
    MPI_File_seek(file, -8, MPI_SEEK_END);
    MPI_File_get_position(file, &bytes);
    EXPECT(bytes == 1192);
    MPI_Barrier(MPI_COMM_WORLD);  // else a faster rank already reads what a slower has not measured
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    expected.resize(300, 0);
    EXPECT(on_disk("sizes") == expected);
}

void modes() {
    MPI_File file = opened("modes", MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL);
    const int value = 7;
    int read = 0, mode = 0;
    if (rank == 0) MPI_File_write_at(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(MPI_File_read_at(file, 0, &read, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    MPI_File_close(&file);
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("modes").c_str(), rdwr | MPI_MODE_EXCL, MPI_INFO_NULL,
                         &file) != MPI_SUCCESS);
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("none").c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL,
                         &file) != MPI_SUCCESS);
    file = opened("modes", MPI_MODE_RDONLY);
    MPI_File_get_amode(file, &mode);
    EXPECT(mode == MPI_MODE_RDONLY);
    EXPECT(MPI_File_read_at(file, 0, &read, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           read == 7);
    EXPECT(MPI_File_write_at(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    MPI_Group group;
    int members = 0;
    MPI_File_get_group(file, &group);
    MPI_Group_size(group, &members);
    MPI_Group_free(&group);
    EXPECT(members == size);
    MPI_File_close(&file);
    file = opened("modes", MPI_MODE_WRONLY | MPI_MODE_APPEND);
    MPI_Offset position = -1;
    MPI_File_get_position(file, &position);
    EXPECT(position == 4);
    MPI_File_close(&file);
    file = opened("gone", rdwr | MPI_MODE_DELETE_ON_CLOSE);
    MPI_File_write_at(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    EXPECT(access(path("gone").c_str(), F_OK) != 0);
}

// A file that is removed, made anew, or changed by another program between two openings is not
// remembered.
void other_hands() {
    for (int round = 0; round < 3; ++round) {
        MPI_File file = opened("hands");
        const std::vector<int> mine(64, rank + 10 * round);
        MPI_File_write_at_all(file, rank * 256, mine.data(), 64, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0 && round == 0) {
            std::fstream out(path("hands"), std::ios::binary | std::ios::in | std::ios::out);
            const int other = 4711;
            out.seekp(256 * (size - 1));
            out.write(reinterpret_cast<const char*>(&other), 4);
        }
        if (rank == 0 && round == 1) MPI_File_delete(path("hands").c_str(), MPI_INFO_NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        file = opened("hands");
        int read = -1;
        MPI_Status status;
        MPI_File_read_at(file, 256 * (size - 1), &read, 1, MPI_INT, &status);
        if (round == 0) EXPECT(read == 4711);
        if (round == 1) EXPECT(count_of(status) == 0);
        if (round == 2) EXPECT(read == size - 1 + 20);
        MPI_File_close(&file);
    }
}

// Who writes last has the byte, whichever rank that is.
void overwriting() {
    MPI_File file = opened("over");
    for (int turn = 0; turn < 3 * size; ++turn) {
        const std::vector<int> mine(100, turn);
        if (turn % size == rank)
            MPI_File_write_at(file, turn % 5 * 40, mine.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
        settle(file);
        int read = -1;
        MPI_File_read_at(file, turn % 5 * 40 + 200, &read, 1, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(read == turn);
        settle(file);
    }
    MPI_File_close(&file);
    EXPECT(on_disk("over")[static_cast<std::size_t>((3 * size - 1) % 5 * 10)] == 3 * size - 1);
}

void atomic_mode() {
    constexpr int n = 2000, rounds = 30;
    MPI_File file = opened("atomic");
    EXPECT(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
    int on = 0;
    MPI_File_get_atomicity(file, &on);
    EXPECT(on == 1);
    for (int round = 0; round < rounds; ++round) {
        std::vector<int> mine(n, rank * rounds + round + 1), read(n);
        MPI_File_write_at(file, 0, mine.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Status status;
        MPI_File_read_at(file, 0, read.data(), n, MPI_INT, &status);
        for (int value : read) EXPECT(value == read[0] && value > 0);
    }
    MPI_File_close(&file);
}

// Views far beyond 2 and 4 GiB, on a file that is mostly a hole.
void far_away() {
    const MPI_Offset far = (MPI_Offset{5} << 30) + rank * 4096;
    MPI_File file = opened("far", rdwr | MPI_MODE_DELETE_ON_CLOSE);
    const auto mine = filled(1024, rank);
    EXPECT(MPI_File_write_at_all(file, far, mine.data(), 1024, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    settle(file);
    std::vector<int> read(1024, -1);
    MPI_File_read_at(file, (MPI_Offset{5} << 30) + (rank + 1) % size * 4096, read.data(), 1024,
                     MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == filled(1024, (rank + 1) % size));
    MPI_File_read_at(file, MPI_Offset{3} << 30, read.data(), 1024, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == std::vector<int>(1024, 0));
    MPI_File_close(&file);
}

// Several files at once, one of them of this rank alone, one of half the ranks.
void several_files() {
    const std::string own = "own" + std::to_string(rank);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_File a = opened("all"), b = opened(own.c_str(), rdwr, MPI_COMM_SELF),
             c = opened(rank % 2 ? "odd" : "even", rdwr, half);
    int member;
    MPI_Comm_rank(half, &member);
    for (int k = 0; k < 50; ++k) {
        const int value = 1000 * rank + k;
        MPI_File_write_at(a, (k * size + rank) * 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_write(b, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_write_at(c, (member * 50 + k) * 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    MPI_File_close(&c);
    MPI_File_close(&a);
    MPI_File_close(&b);
    MPI_Comm_free(&half);
    EXPECT(on_disk(own.c_str()) == filled(50, 1000 * rank));
    const auto all = on_disk("all");
    EXPECT(static_cast<int>(all.size()) == 50 * size &&
           all[static_cast<std::size_t>(size * 49 + size - 1)] == 1000 * (size - 1) + 49);
}

// More in one call, and more calls, than a small store holds at a time.
void more_than_the_store() {
    constexpr int n = 6 << 20, rounds = 4;  // 24 MiB a call
    MPI_File file = opened("much", rdwr);
    std::vector<int> mine;
    for (int round = 0; round < rounds; ++round) {
        mine = filled(n, (round * size + rank) * n);
        EXPECT(MPI_File_write_at_all(file, MPI_Offset{4} * (round * size + rank) * n, mine.data(),
                                     n, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    settle(file);
    const int other = (rank + 1) % size;
    EXPECT(MPI_File_read_at(file, MPI_Offset{4} * other * n, mine.data(), n, MPI_INT,
                            MPI_STATUS_IGNORE) == MPI_SUCCESS);
    EXPECT(mine == filled(n, other * n));
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(on_disk("much") == filled(n * rounds * size, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path("much").c_str());
}

const std::vector<Case> promised = {{"explicit-offsets", explicit_offsets},
                                    {"strided-view", strided_view},
                                    {"subarrays", subarrays},
                                    {"block-cyclic", block_cyclic},
                                    {"memory-types", memory_types},
                                    {"shared-pointer", shared_pointer},
                                    {"ordered-and-split", ordered_and_split},
                                    {"nonblocking", nonblocking},
                                    {"sizes", sizes},
                                    {"modes", modes},
                                    {"other-hands", other_hands},
                                    {"overwriting", overwriting},
                                    {"atomic-mode", atomic_mode},
                                    {"far-away", far_away},
                                    {"several-files", several_files},
                                    {"more-than-the-store", more_than_the_store}};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    folder = argv[1];
    const std::string wanted = argc > 2 ? argv[2] : "";
    std::vector<Case> cases;
    if (wanted != "together") cases = promised;
    if (wanted != "promised") cases.insert(cases.end(), together.begin(), together.end());
    for (const auto& each : cases) {
        if (!wanted.empty() && wanted != "promised" && wanted != "together" && wanted != each.name)
            continue;
        failure.clear();
        each.run();
        int bad = failure.empty() ? size : rank, first = 0;
        MPI_Allreduce(&bad, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (rank == first) std::printf("bad %s: rank %d: %s\n", each.name, rank, failure.c_str());
        if (rank == 0 && first == size) std::printf("ok %s\n", each.name);
        std::fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
