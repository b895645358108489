// A conformance test of MPI-IO, similar to the test suites of MPICH and ROMIO.
//
// The same program runs with the MPI's own I/O and with the accelerator, for each MPI: a case that
// passes with the first must pass with the second. Every case checks its own bytes and prints a
// line: "ok NAME" or "bad NAME: reason".
//
//   mpiio FOLDER [standard | visibility | NAME]
//   mpiio FOLDER info [KEY=VALUE ...]    prints the file's info for these hints instead
//
// Some run by their names only: "forbidden-calls" (modes.cpp), because ROMIO waits for ever in one
// of its calls, and those that test what the MPIs do not promise, or that need much memory.
#include "mpiio/check.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "mpiio/errors.hpp"
#include "mpiio/modes.hpp"
#include "mpiio/types.hpp"
#include "mpiio/visibility.hpp"

namespace {

void explicit_offsets() {
    constexpr int n = 1000;
    MPI_File file = open_file("explicit");
    MPI_Status status;
    const auto written = consecutive(n, rank * n);
    EXPECT(MPI_File_write_at(file, rank * n * 4, written.data(), n, MPI_INT, &status) ==
           MPI_SUCCESS);
    EXPECT(count_of(status) == n);
    sync_all(file);
    const int other = (rank + 1) % size;
    std::vector<int> read(n);
    EXPECT(MPI_File_read_at(file, other * n * 4, read.data(), n, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n && read == consecutive(n, other * n));
    // Beyond the end: only existing bytes are read.
    EXPECT(MPI_File_read_at(file, (size * n - 10) * 4, read.data(), n, MPI_INT, &status) ==
           MPI_SUCCESS);
    EXPECT(count_of(status) == 10);
    MPI_File_close(&file);
    EXPECT(read_back("explicit") == consecutive(size * n, 0));
}

void strided_view() {
    constexpr int blocks = 50, block = 7;
    MPI_File file = open_file("strided");
    MPI_Datatype type;
    MPI_Type_vector(blocks, block, block * size, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_File_set_view(file, rank * block * 4, MPI_INT, type, "native", MPI_INFO_NULL);
    const auto written = consecutive(blocks * block, rank * 10000);
    MPI_Status status;
    EXPECT(MPI_File_write_all(file, written.data(), blocks * block, MPI_INT, &status) ==
           MPI_SUCCESS);
    EXPECT(count_of(status) == blocks * block);
    MPI_Offset position = -1, byte = -1;
    MPI_File_get_position(file, &position);
    EXPECT(position == blocks * block);
    MPI_File_get_byte_offset(file, block, &byte);
    EXPECT(byte == rank * block * 4 + block * size * 4);
    MPI_File_seek(file, 3, MPI_SEEK_SET);
    std::vector<int> read(20);
    EXPECT(MPI_File_read_all(file, read.data(), 20, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(read == consecutive(20, rank * 10000 + 3));
    MPI_Type_free(&type);
    MPI_File_close(&file);
    const auto content = read_back("strided");
    EXPECT(static_cast<int>(content.size()) == blocks * block * size);
    for (int k = 0; k < static_cast<int>(content.size()) && failure.empty(); ++k) {
        const int writer = k / block % size, row = k / (block * size);
        EXPECT(content[static_cast<std::size_t>(k)] == writer * 10000 + row * block + k % block);
    }
}

// A matrix divided by rows: subarrays as the file type and, with ghost cells, as the memory type.
void subarrays() {
    constexpr int rows = 12, columns = 9;
    const int sizes[] = {rows * size, columns}, subsizes[] = {rows, columns},
              starts[] = {rows * rank, 0};
    const int sizes_with_ghosts[] = {rows + 2, columns + 2}, starts_without_ghosts[] = {1, 1};
    MPI_Datatype in_file, in_memory;
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &in_file);
    MPI_Type_create_subarray(2, sizes_with_ghosts, subsizes, starts_without_ghosts, MPI_ORDER_C,
                             MPI_INT, &in_memory);
    MPI_Type_commit(&in_file);
    MPI_Type_commit(&in_memory);
    std::vector<int> local(static_cast<std::size_t>(sizes_with_ghosts[0] * sizes_with_ghosts[1]),
                           -1);
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column)
            local[static_cast<std::size_t>((row + 1) * sizes_with_ghosts[1] + column + 1)] =
                (rank * rows + row) * columns + column;
    MPI_File file = open_file("subarray");
    MPI_File_set_view(file, 0, MPI_INT, in_file, "native", MPI_INFO_NULL);
    EXPECT(MPI_File_write_at_all(file, 0, local.data(), 1, in_memory, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    std::vector<int> read_buffer(local.size(), -1);
    EXPECT(MPI_File_read_at_all(file, 0, read_buffer.data(), 1, in_memory, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    EXPECT(read_buffer == local);
    MPI_Type_free(&in_file);
    MPI_Type_free(&in_memory);
    MPI_File_close(&file);
    EXPECT(read_back("subarray") == consecutive(rows * size * columns, 0));
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
        MPI_File file = open_file("darray");
        MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
        // MPI_Pack with the same type gives each rank the data that belong to its part.
        const auto content = consecutive(sizes[0] * sizes[1], 5);
        std::vector<int> written(static_cast<std::size_t>(bytes / 4));
        int packed_bytes = 0;
        if (bytes)
            MPI_Pack(content.data(), 1, type, written.data(), bytes, &packed_bytes, MPI_COMM_SELF);
        EXPECT(MPI_File_write_all(file, written.data(), bytes / 4, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
        MPI_Type_free(&type);
        MPI_File_close(&file);
        EXPECT(read_back("darray") == content);
    }
}

// Noncontiguous memory types of every kind, into a contiguous file and back.
void memory_types() {
    std::vector<MPI_Datatype> types(7);
    const int lengths[] = {3, 0, 2}, displacements_in_ints[] = {5, 0, 1};
    MPI_Type_indexed(3, lengths, displacements_in_ints, MPI_INT, &types[0]);
    const MPI_Aint addresses[] = {40, 0, 8};
    MPI_Type_create_hindexed(3, lengths, addresses, MPI_INT, &types[1]);
    const int displacements[] = {5, 0, 2};
    MPI_Type_create_indexed_block(3, 2, displacements, MPI_SHORT, &types[2]);
    const MPI_Datatype parts[] = {MPI_DOUBLE, MPI_CHAR, MPI_SHORT};
    const int counts[] = {1, 3, 2};
    const MPI_Aint offsets[] = {0, 8, 12};
    MPI_Type_create_struct(3, counts, offsets, parts, &types[3]);
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
        std::vector<char> from(static_cast<std::size_t>(extent * n + 64)),
            read_buffer(from.size(), 99), packed(static_cast<std::size_t>(bytes * n));
        for (std::size_t byte = 0; byte < from.size(); ++byte)
            from[byte] = static_cast<char>(byte * 7 + 1);
        int packed_bytes = 0;
        MPI_Pack(from.data(), n, type, packed.data(), bytes * n, &packed_bytes, MPI_COMM_SELF);
        const std::string name =
            "memory" + std::to_string(k);  // some file systems show a deleted name for a while
        MPI_File file = open_file(name.c_str(), read_write_create | MPI_MODE_DELETE_ON_CLOSE);
        const MPI_Offset file_offset = rank * bytes * n;
        MPI_Status status;
        EXPECT(MPI_File_write_at(file, file_offset, from.data(), n, type, &status) == MPI_SUCCESS);
        EXPECT(count_of(status, MPI_BYTE) == bytes * n);
        std::vector<char> read(packed.size());
        EXPECT(MPI_File_read_at(file, file_offset, read.data(), bytes * n, MPI_BYTE, &status) ==
               MPI_SUCCESS);
        EXPECT(read == packed);
        EXPECT(MPI_File_read_at(file, file_offset, read_buffer.data(), n, type, &status) ==
               MPI_SUCCESS);
        std::vector<char> packed_again(packed.size());
        packed_bytes = 0;
        MPI_Pack(read_buffer.data(), n, type, packed_again.data(), bytes * n, &packed_bytes,
                 MPI_COMM_SELF);
        EXPECT(packed_again == packed);
        MPI_Type_free(&type);
        MPI_File_close(&file);
        if (!failure.empty() && failure.find("type") == std::string::npos)
            failure += ", of type " + std::to_string(k);
    }
}

void shared_pointer() {
    constexpr int n = 16, rounds = 20;
    MPI_File file = open_file("shared");
    for (int round = 0; round < rounds; ++round) {
        const std::vector<int> written(n, rank * rounds + round);
        EXPECT(MPI_File_write_shared(file, written.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
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
    // Every block is complete and occurs exactly once.
    const auto content = read_back("shared");
    std::vector<int> seen(static_cast<std::size_t>(rounds * size));
    EXPECT(static_cast<int>(content.size()) == n * rounds * size);
    for (std::size_t k = 0; k < content.size() && failure.empty(); ++k) {
        EXPECT(content[k] == content[k / n * n]);
        if (k % n == 0 && content[k] >= 0 && content[k] < rounds * size)
            ++seen[static_cast<std::size_t>(content[k])];
    }
    EXPECT(seen == std::vector<int>(seen.size(), 1));
    EXPECT(ordered ==
           std::vector<int>(content.begin() + rank * n, content.begin() + (rank + 1) * n));
}

// Two handles of one file, each with a pointer of its own, as those of two communicators are.
void two_shared_pointers() {
    constexpr int n = 1024, rounds = 50;
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int members;
    MPI_Comm_size(half, &members);
    MPI_File file_of_all = open_file("pointers"),
             file_of_half = open_file("pointers", read_write_create, half);
    MPI_Barrier(MPI_COMM_WORLD);  // neither open sees what is written
    MPI_File_seek_shared(file_of_half, 4 * n * rounds * (size + (rank % 2) * size), MPI_SEEK_SET);
    for (int round = 0; round < rounds; ++round) {
        const std::vector<int> written(n, rank * rounds + round);
        for (MPI_File file : {file_of_all, file_of_half})
            EXPECT(MPI_File_write_shared(file, written.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Offset of_all, of_half;
    MPI_File_get_position_shared(file_of_all, &of_all);
    MPI_File_get_position_shared(file_of_half, &of_half);
    EXPECT(of_all == 4 * n * rounds * size);
    EXPECT(of_half == 4 * n * rounds * (size + (rank % 2) * size + members));
    MPI_File_close(&file_of_half);
    MPI_File_close(&file_of_all);
    MPI_Comm_free(&half);
    MPI_Barrier(MPI_COMM_WORLD);
    // Every block of the handle of all ranks is complete and occurs once.
    const auto content = read_back("pointers");
    std::vector<int> seen(static_cast<std::size_t>(rounds * size));
    for (std::size_t k = 0; k < seen.size() * n && k < content.size(); ++k) {
        EXPECT(content[k] == content[k / n * n]);
        if (k % n == 0 && content[k] >= 0 && content[k] < rounds * size)
            ++seen[static_cast<std::size_t>(content[k])];
    }
    EXPECT(seen == std::vector<int>(seen.size(), 1));
}

// The end of a file in a view with holes: the etypes of the view before it, rounded up.
void end_of_view() {
    constexpr int bytes = 100;  // a rank; 25 etypes
    MPI_File file = open_file("end");
    EXPECT(MPI_File_write_at_all(file, rank * bytes, std::string(bytes, 'x').data(), bytes,
                                 MPI_BYTE, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    sync_all(file);
    // Two of five ints are in the view, which begins at byte 2.
    MPI_Datatype two, filetype;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, 5 * sizeof(int), &filetype);
    MPI_Type_commit(&filetype);
    MPI_File_set_view(file, 2, MPI_INT, filetype, "native", MPI_INFO_NULL);
    MPI_File_seek(file, 0, MPI_SEEK_END);
    MPI_Offset position, offset;
    MPI_File_get_position(file, &position);
    const int behind = size * bytes - 2, tiles = behind / 20, rest = behind % 20;
    const int visible = tiles * 8 + (rest < 8 ? rest : 8);
    EXPECT(position == (visible + 3) / 4);
    MPI_File_get_byte_offset(file, position, &offset);
    const int value = 7;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_File_write(file, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Type_free(&two);
    MPI_Type_free(&filetype);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    std::ifstream in(path("end"), std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(in), {}};
    content.resize(static_cast<std::size_t>(offset) + 4);
    int found;
    std::memcpy(&found, content.data() + offset, 4);
    EXPECT(found == value);
    EXPECT(content.compare(0, static_cast<std::size_t>(size * bytes),
                           std::string(static_cast<std::size_t>(size * bytes), 'x')) == 0);
}

void ordered_and_split() {
    const int n = 10 + rank;  // different on each rank
    MPI_File file = open_file("ordered");
    int before = 0;
    for (int k = 0; k < rank; ++k) before += 10 + k;
    int all = 0;
    for (int k = 0; k < size; ++k) all += 10 + k;
    const auto first = consecutive(n, before), second = consecutive(n, all + before);
    EXPECT(MPI_File_write_ordered(file, first.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    EXPECT(MPI_File_write_ordered_begin(file, second.data(), n, MPI_INT) == MPI_SUCCESS);
    MPI_Status status;
    EXPECT(MPI_File_write_ordered_end(file, second.data(), &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n);
    sync_all(file);
    std::vector<int> read(5);
    EXPECT(MPI_File_read_at_all_begin(file, 0, read.data(), 5, MPI_INT) == MPI_SUCCESS);
    EXPECT(MPI_File_read_at_all_end(file, read.data(), &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == 5 && read == consecutive(5, 0));
    MPI_File_close(&file);
    EXPECT(read_back("ordered") == consecutive(2 * all, 0));
}

// A file that is written in the order of the ranks only, as a stream is.
void sequential() {
    constexpr int n = 100;
    MPI_File file = open_file("stream", MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_SEQUENTIAL);
    for (int round = 0; round < 2; ++round) {
        const auto written = consecutive(n, (round * size + rank) * n);
        EXPECT(MPI_File_write_ordered(file, written.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
        EXPECT(class_of(MPI_File_seek_shared(file, 0, MPI_SEEK_SET)) ==
               MPI_ERR_UNSUPPORTED_OPERATION);
    }
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(read_back("stream") == consecutive(2 * size * n, 0));
}

void nonblocking() {
    constexpr int n = 500, requests = 8;
    MPI_File file = open_file("nonblocking");
    std::vector<std::vector<int>> parts;
    std::vector<MPI_Request> wait(requests);
    for (int k = 0; k < requests; ++k) parts.push_back(consecutive(n, (rank * requests + k) * n));
    for (std::size_t k = 0; k < requests; ++k) {
        const auto offset = (rank * requests + static_cast<int>(k)) * n * 4;
        EXPECT(MPI_File_iwrite_at(file, offset, parts[k].data(), n, MPI_INT, &wait[k]) ==
               MPI_SUCCESS);
    }
    std::vector<MPI_Status> statuses(requests);
    EXPECT(MPI_Waitall(requests, wait.data(), statuses.data()) == MPI_SUCCESS);
    for (auto& status : statuses) EXPECT(count_of(status) == n);
    sync_all(file);
    MPI_Request request;
    MPI_Status status;
    std::vector<int> read(n);
    const int other = (rank + 1) % size;
    EXPECT(MPI_File_iread_at(file, other * requests * n * 4, read.data(), n, MPI_INT, &request) ==
           MPI_SUCCESS);
    EXPECT(MPI_Wait(&request, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == n && read == consecutive(n, other * requests * n));
    MPI_File_close(&file);
    EXPECT(read_back("nonblocking") == consecutive(size * requests * n, 0));
}

void sizes() {
    MPI_File file = open_file("sizes");
    MPI_Offset bytes = -1;
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto written = consecutive(100, rank * 100);
    MPI_File_write_at_all(file, rank * 400, written.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
    sync_all(file);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 400 * size);
    EXPECT(MPI_File_set_size(file, 120) == MPI_SUCCESS);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 120);
    // Truncated data do not reappear when the file grows again.
    EXPECT(MPI_File_set_size(file, 800) == MPI_SUCCESS);
    std::vector<int> read(200, -1);
    MPI_Status status;
    MPI_File_read_at_all(file, 0, read.data(), 200, MPI_INT, &status);
    auto expected = consecutive(200, 0);
    std::fill(expected.begin() + 30, expected.end(), 0);
    EXPECT(count_of(status) == 200 && read == expected);
    EXPECT(MPI_File_preallocate(file, 1200) == MPI_SUCCESS);
    MPI_File_get_size(file, &bytes);
    EXPECT(bytes == 1200);
    MPI_File_seek(file, -8, MPI_SEEK_END);
    MPI_File_get_position(file, &bytes);
    EXPECT(bytes == 1192);
    MPI_Barrier(MPI_COMM_WORLD);  // a faster rank must not read before a slower one has measured
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    expected.resize(300, 0);
    EXPECT(read_back("sizes") == expected);
}

void modes() {
    MPI_File file = open_file("modes", MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL);
    const int value = 7;
    int read = 0, mode = 0;
    if (rank == 0) MPI_File_write_at(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(MPI_File_read_at(file, 0, &read, 1, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    MPI_File_close(&file);
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("modes").c_str(), read_write_create | MPI_MODE_EXCL,
                         MPI_INFO_NULL, &file) != MPI_SUCCESS);
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("none").c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL,
                         &file) != MPI_SUCCESS);
    file = open_file("modes", MPI_MODE_RDONLY);
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
    file = open_file("modes", MPI_MODE_WRONLY | MPI_MODE_APPEND);
    MPI_Offset position = -1;
    MPI_File_get_position(file, &position);
    EXPECT(position == 4);
    MPI_File_close(&file);
    file = open_file("gone", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
    MPI_File_write_at(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    EXPECT(access(path("gone").c_str(), F_OK) != 0);
}

// A file that is removed, recreated or changed by another program between two openings is read as
// it is then, not from cached state.
void changed_outside() {
    for (int round = 0; round < 3; ++round) {
        MPI_File file = open_file("hands");
        const std::vector<int> written(64, rank + 10 * round);
        MPI_File_write_at_all(file, rank * 256, written.data(), 64, MPI_INT, MPI_STATUS_IGNORE);
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
        file = open_file("hands");
        int read = -1;
        MPI_Status status;
        MPI_File_read_at(file, 256 * (size - 1), &read, 1, MPI_INT, &status);
        if (round == 0) EXPECT(read == 4711);
        if (round == 1) EXPECT(count_of(status) == 0);
        if (round == 2) EXPECT(read == size - 1 + 20);
        MPI_File_close(&file);
    }
}

// The last write of a byte wins, whichever rank wrote it.
void overwriting() {
    MPI_File file = open_file("over");
    for (int turn = 0; turn < 3 * size; ++turn) {
        const std::vector<int> written(100, turn);
        if (turn % size == rank)
            MPI_File_write_at(file, turn % 5 * 40, written.data(), 100, MPI_INT, MPI_STATUS_IGNORE);
        sync_all(file);
        int read = -1;
        MPI_File_read_at(file, turn % 5 * 40 + 200, &read, 1, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(read == turn);
        sync_all(file);
    }
    MPI_File_close(&file);
    EXPECT(read_back("over")[static_cast<std::size_t>((3 * size - 1) % 5 * 10)] == 3 * size - 1);
}

void atomic_mode() {
    MPI_File file = open_file("atomic");
    EXPECT(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
    int on = 0;
    MPI_File_get_atomicity(file, &on);
    EXPECT(on == 1);
    constexpr std::pair<int, int> transfers[] = {{2000, 30}, {6 << 20, 4}};  // up to 24 MiB
    for (const auto& [n, rounds] : transfers)
        for (int round = 0; round < rounds; ++round) {
            std::vector<int> written(n, rank * rounds + round + 1), read(n);
            EXPECT(MPI_File_write_at(file, 0, written.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
            EXPECT(MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
            EXPECT(read[0] > 0 && std::ranges::count(read, read[0]) == n);
        }
    MPI_File_close(&file);
}

// Offsets far beyond 2 and 4 GiB, in a sparse file.
void large_offsets() {
    const MPI_Offset offset_beyond_4_gib = (MPI_Offset{5} << 30) + rank * 4096;
    MPI_File file = open_file("far", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
    const auto written = consecutive(1024, rank);
    EXPECT(MPI_File_write_at_all(file, offset_beyond_4_gib, written.data(), 1024, MPI_INT,
                                 MPI_STATUS_IGNORE) == MPI_SUCCESS);
    sync_all(file);
    std::vector<int> read(1024, -1);
    MPI_File_read_at(file, (MPI_Offset{5} << 30) + (rank + 1) % size * 4096, read.data(), 1024,
                     MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == consecutive(1024, (rank + 1) % size));
    MPI_File_read_at(file, MPI_Offset{3} << 30, read.data(), 1024, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == std::vector<int>(1024, 0));
    MPI_File_close(&file);
}

// Several open files: one of all ranks, one of this rank only, one of half of the ranks.
void several_files() {
    const std::string own_name = "own" + std::to_string(rank);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_File file_of_all = open_file("all"),
             file_of_rank = open_file(own_name.c_str(), read_write_create, MPI_COMM_SELF),
             file_of_half = open_file(rank % 2 ? "odd" : "even", read_write_create, half);
    int member;
    MPI_Comm_rank(half, &member);
    for (int k = 0; k < 50; ++k) {
        const int value = 1000 * rank + k;
        MPI_File_write_at(file_of_all, (k * size + rank) * 4, &value, 1, MPI_INT,
                          MPI_STATUS_IGNORE);
        MPI_File_write(file_of_rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_write_at(file_of_half, (member * 50 + k) * 4, &value, 1, MPI_INT,
                          MPI_STATUS_IGNORE);
    }
    MPI_File_close(&file_of_half);
    MPI_File_close(&file_of_all);
    MPI_File_close(&file_of_rank);
    MPI_Comm_free(&half);
    EXPECT(read_back(own_name.c_str()) == consecutive(50, 1000 * rank));
    const auto all = read_back("all");
    EXPECT(static_cast<int>(all.size()) == 50 * size &&
           all[static_cast<std::size_t>(size * 49 + size - 1)] == 1000 * (size - 1) + 49);
}

// Calls of 24 MiB, which in all write more than the store holds.
void larger_than_store() {
    constexpr int n = 6 << 20, rounds = 4;  // 24 MiB a call
    MPI_File file = open_file("much", read_write_create);
    std::vector<int> buffer;
    for (int round = 0; round < rounds; ++round) {
        buffer = consecutive(n, (round * size + rank) * n);
        EXPECT(MPI_File_write_at_all(file, MPI_Offset{4} * (round * size + rank) * n, buffer.data(),
                                     n, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    sync_all(file);
    const int other = (rank + 1) % size;
    EXPECT(MPI_File_read_at(file, MPI_Offset{4} * other * n, buffer.data(), n, MPI_INT,
                            MPI_STATUS_IGNORE) == MPI_SUCCESS);
    EXPECT(buffer == consecutive(n, other * n));
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    const int share = n * rounds, first = rank * share;  // of the file, which each rank checks
    EXPECT(read_back("much", first, share) == consecutive(share, first));
    EXPECT(read_back("much", share * size, 1).empty());
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path("much").c_str());
}

// The hints that the user gave are those of the file. ROMIO has one node for collective buffers on
// one host.
void hints() {
    MPI_Info given, found;
    MPI_Info_create(&given);
    const std::pair<const char*, const char*> hints[] = {{"cb_nodes", "1"},
                                                         {"cb_buffer_size", "1048576"},
                                                         {"romio_cb_write", "enable"},
                                                         {"romio_ds_write", "disable"}};
    for (const auto& [key, value] : hints) MPI_Info_set(given, key, value);
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("hints").c_str(), read_write_create, given, &file) ==
           MPI_SUCCESS);
    MPI_Info_free(&given);
    EXPECT(MPI_File_get_info(file, &found) == MPI_SUCCESS);
    for (const auto& [key, value] : hints) {
        char text[MPI_MAX_INFO_VAL] = "";
        int is_set = 0;
        MPI_Info_get(found, key, MPI_MAX_INFO_VAL - 1, text, &is_set);
        EXPECT(is_set && std::string(text) == value);
    }
    MPI_Info_free(&found);
    MPI_File_close(&file);
}

// Prints the info of a file that was opened with the hints KEY=VALUE of the command line.
std::vector<std::string> given_hints;
void print_info() {
    MPI_Info given, found;
    MPI_Info_create(&given);
    for (const std::string& hint : given_hints) {
        const auto equals = hint.find('=');
        MPI_Info_set(given, hint.substr(0, equals).c_str(), hint.substr(equals + 1).c_str());
    }
    MPI_File file = open_file("info", read_write_create, MPI_COMM_WORLD, given);
    MPI_Info_free(&given);
    MPI_File_get_info(file, &found);
    int keys = 0;
    MPI_Info_get_nkeys(found, &keys);
    for (int k = 0; k < keys; ++k) {
        char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
        int is_set = 0;
        MPI_Info_get_nthkey(found, k, key);
        MPI_Info_get(found, key, MPI_MAX_INFO_VAL, value, &is_set);
        std::printf("%d %s=%s\n", rank, key, value);
    }
    MPI_Info_free(&found);
    MPI_File_close(&file);
}

const std::vector<Case> standard_cases = {{"explicit-offsets", explicit_offsets},
                                          {"strided-view", strided_view},
                                          {"subarrays", subarrays},
                                          {"block-cyclic", block_cyclic},
                                          {"memory-types", memory_types},
                                          {"shared-pointer", shared_pointer},
                                          {"two-shared-pointers", two_shared_pointers},
                                          {"end-of-view", end_of_view},
                                          {"ordered-and-split", ordered_and_split},
                                          {"sequential", sequential},
                                          {"nonblocking", nonblocking},
                                          {"sizes", sizes},
                                          {"modes", modes},
                                          new_files,
                                          {"changed-outside", changed_outside},
                                          {"overwriting", overwriting},
                                          {"atomic-mode", atomic_mode},
                                          {"large-offsets", large_offsets},
                                          {"several-files", several_files},
                                          {"larger-than-store", larger_than_store},
                                          {"hints", hints},
                                          error_handler};

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    folder = argv[1];
    const std::string selected = argc > 2 ? argv[2] : "";
    if (argc > 3) given_hints.assign(argv + 3, argv + argc);
    std::vector<Case> cases;
    if (selected != "visibility") {
        cases = standard_cases;
        cases.insert(cases.end(), type_cases.begin(), type_cases.end());
    }
    if (selected != "standard")
        cases.insert(cases.end(), visibility_cases.begin(), visibility_cases.end());
    for (const Case& by_name : {forbidden_calls, little_memory, two_gigabytes, largest_offsets,
                                errors_of_the_mpi, Case{"info", print_info}})
        if (selected == by_name.name) cases = {by_name};
    for (const auto& test_case : cases) {
        if (!selected.empty() && selected != "standard" && selected != "visibility" &&
            selected != test_case.name)
            continue;
        failure.clear();
        test_case.run();
        int bad = failure.empty() ? size : rank, first = 0;
        MPI_Allreduce(&bad, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (rank == first)
            std::printf("bad %s: rank %d: %s\n", test_case.name, rank, failure.c_str());
        if (rank == 0 && first == size) std::printf("ok %s\n", test_case.name);
        std::fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
