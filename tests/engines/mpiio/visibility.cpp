// Test cases on the visibility of writes of other ranks (visibility.hpp): after messages, barriers
// and collective transfers, after truncations and evictions, and in random histories.
#include "mpiio/visibility.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

// A token goes from rank to rank: its holder reads what the previous one wrote, and overwrites a
// part of it.
void visible_after_message() {
    constexpr int n = 1000, rounds = 150;
    MPI_File file = open_file("message");
    std::vector<int> expected(n, -1), read(n);
    for (int turn = 0; turn < rounds; ++turn) {
        const int begin = turn * 37 % (n / 2), length = turn ? n / 2 - turn % 7 : n;
        if (turn % size == rank) {
            if (turn) {
                MPI_Recv(expected.data(), n, MPI_INT, (turn - 1) % size, turn, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
                EXPECT(read == expected);
            }
            const std::vector<int> written(static_cast<std::size_t>(length), turn);
            MPI_File_write_at(file, (turn ? begin : 0) * 4, written.data(), length, MPI_INT,
                              MPI_STATUS_IGNORE);
            std::copy(written.begin(), written.end(), expected.begin() + (turn ? begin : 0));
            if (turn + 1 < rounds)
                MPI_Send(expected.data(), n, MPI_INT, (turn + 1) % size, turn + 1, MPI_COMM_WORLD);
        }
    }
    MPI_Bcast(expected.data(), n, MPI_INT, (rounds - 1) % size, MPI_COMM_WORLD);
    MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == expected);
    MPI_File_close(&file);
    EXPECT(read_back("message") == expected);
}

// All ranks write, pass a barrier and read everything; each rank writes another block in each
// round.
void visible_after_barrier() {
    constexpr int n = 300, rounds = 40;
    MPI_File file = open_file("barrier");
    std::vector<int> expected(static_cast<std::size_t>(n * size)), read(expected.size());
    for (int round = 0; round < rounds; ++round) {
        const int block = (rank + round) % size;
        const std::vector<int> written(n, round * size + rank);
        MPI_File_write_at(file, block * n * 4, written.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int k = 0; k < size; ++k)
            std::fill_n(expected.begin() + (k + round) % size * n, n, round * size + k);
        MPI_File_read_at(file, 0, read.data(), n * size, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(read == expected);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    EXPECT(read_back("barrier") == expected);
}

// The ranks take turns to append a block. Each of them then finds the end of the file.
void end_after_barrier() {
    constexpr int bytes = 4096, rounds = 12;
    MPI_File file = open_file("end");
    const std::vector<char> written(bytes, 'e');
    for (MPI_Offset end = 0; end < bytes * rounds;) {
        if (end / bytes % size == rank)
            MPI_File_write_at(file, end, written.data(), bytes, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        end += bytes;
        MPI_Offset found = -1, found_together = -1;
        MPI_File_seek(file, 0, MPI_SEEK_END);
        MPI_File_get_position(file, &found);
        MPI_File_seek_shared(file, 0, MPI_SEEK_END);
        MPI_File_get_position_shared(file, &found_together);
        EXPECT(found == end && found_together == end);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
}

// Each open with MPI_MODE_APPEND begins at the end that the ranks have written before, on whichever
// node; the ranks append in turn, or together in their order.
void appended() {
    constexpr int n = 1000, rounds = 6;
    for (int round = 0; round < rounds; ++round) {
        const MPI_Offset end = MPI_Offset{4} * n * (round / 2 * (size + 1) + round % 2);
        MPI_File file = open_file("append", MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_APPEND);
        MPI_Offset position = -1, shared_position = -1;
        MPI_File_get_position(file, &position);
        MPI_File_get_position_shared(file, &shared_position);
        EXPECT(position == end && shared_position == end);
        MPI_Barrier(MPI_COMM_WORLD);
        const int first = static_cast<int>(end / 4) + (round % 2 ? n * rank : 0);
        const auto written = consecutive(n, first);
        if (round % 2) MPI_File_write_ordered(file, written.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        else if (rank == round / 2 % size)
            MPI_File_write(file, written.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    EXPECT(read_back("append") == consecutive(rounds / 2 * (size + 1) * n, 0));
}

// A size that is set through one handle is that of another, after a synchronization.
void cut_by_another_handle() {
    constexpr int n = 4000;
    MPI_File writer = open_file("cut"), reader = open_file("cut");
    const auto written = consecutive(n, rank * n);
    MPI_File_write_at_all(writer, MPI_Offset{4} * rank * n, written.data(), n, MPI_INT,
                          MPI_STATUS_IGNORE);
    const auto sync_both = [&] {
        MPI_File_sync(writer);
        MPI_File_sync(reader);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_sync(reader);
        MPI_File_sync(writer);
    };
    std::vector<int> read(static_cast<std::size_t>(n * size));
    const auto check = [&](int ints) {
        MPI_Offset bytes = -1;
        MPI_File_get_size(reader, &bytes);
        EXPECT(bytes == MPI_Offset{4} * ints);
        MPI_File_seek(reader, 0, MPI_SEEK_END);
        MPI_File_get_position(reader, &bytes);
        EXPECT(bytes == MPI_Offset{4} * ints);
        MPI_Status status;
        EXPECT(MPI_File_read_at(reader, 0, read.data(), n * size, MPI_INT, &status) == MPI_SUCCESS);
        EXPECT(count_of(status) == ints);
        EXPECT(
            std::equal(read.begin(), read.begin() + std::min(n, ints), consecutive(n, 0).begin()));
    };
    sync_both();
    check(n * size);
    sync_both();  // no rank cuts before all have read
    EXPECT(MPI_File_set_size(writer, MPI_Offset{4} * 100) == MPI_SUCCESS);
    sync_both();
    check(100);
    // What is cut off stays zero when the file grows again.
    sync_both();
    EXPECT(MPI_File_set_size(writer, MPI_Offset{4} * 200) == MPI_SUCCESS);
    sync_both();
    MPI_Status status;
    EXPECT(MPI_File_read_at(reader, 0, read.data(), n, MPI_INT, &status) == MPI_SUCCESS);
    EXPECT(count_of(status) == 200 && std::all_of(read.begin() + 100, read.begin() + 200,
                                                  [](int value) { return value == 0; }));
    MPI_File_close(&reader);
    MPI_File_close(&writer);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(read_back("cut").size() == 200);
}

// The ranks communicate only by collective transfers. Each is complete on all ranks before the
// next.
void visible_after_collective() {
    constexpr int n = 300, rounds = 60;
    std::mt19937 random(static_cast<unsigned>(rank));
    MPI_File file = open_file("collective");
    std::vector<int> expected(static_cast<std::size_t>(n * size)), read(expected.size());
    for (int round = 0; round < rounds; ++round) {
        usleep(random() % 4 == 0 ? 3000 : 0);
        const std::vector<int> all(expected.size(), -round), written(n, round * size + rank);
        MPI_File_write_at_all(file, 0, all.data(), rank == round % size ? n * size : 0, MPI_INT,
                              MPI_STATUS_IGNORE);
        MPI_File_write_at_all(file, (rank + round) % size * n * 4, written.data(), n, MPI_INT,
                              MPI_STATUS_IGNORE);
        for (int k = 0; k < size; ++k)
            std::fill_n(expected.begin() + (k + round) % size * n, n, round * size + k);
        MPI_File_read_at_all(file, 0, read.data(), n * size, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(read == expected);
    }
    MPI_File_close(&file);
    EXPECT(read_back("collective") == expected);
}

// Ranks overwrite the same bytes in turn, in overlapping patterns; no rank reads before the file is
// closed.
void overwritten_unread() {
    constexpr int n = 4000, rounds = 30;
    MPI_File file = open_file("unread");
    std::vector<int> expected(n, 0);
    for (int turn = 0; turn < rounds * size; ++turn) {
        const int stride = 3 + turn % 5, first = turn * 11 % 50, count = (n - 2 - first) / stride;
        if (turn % size == rank) {
            const int pair[] = {turn, turn};
            for (int k = 0; k < count; ++k)
                MPI_File_write_at(file, (first + k * stride) * 4, pair, 2, MPI_INT,
                                  MPI_STATUS_IGNORE);
        }
        for (int k = 0; k < count; ++k)
            for (int offset = first + k * stride; offset < first + k * stride + 2; ++offset)
                expected[static_cast<std::size_t>(offset)] = turn;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_File_close(&file);
    auto content = read_back("unread");
    content.resize(n);
    EXPECT(content == expected);
}

// The size of the file after writes and after a truncation.
void lengths() {
    MPI_File file = open_file("lengths");
    for (int turn = 0; turn < 3 * size; ++turn) {
        if (turn % size == rank)
            MPI_File_write_at(file, turn * 100 * 4, &turn, 1, MPI_INT, MPI_STATUS_IGNORE);
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
    EXPECT(count_of(status) == 501 && read[500] == 7 && read[400] == 0 && read[0] == 0 &&
           read[100] == 1 && read[300] == 0);
    MPI_File_close(&file);
}

// Two ranks write the same block, then the second writes more than a store holds. The eviction of
// its block must not make the older data visible again to a rank that has not read before.
void evicted_from_store() {
    constexpr int n = 2000, large_count = 4 << 20, calls = 12;  // 192 MiB
    if (size < 2) return;
    MPI_File file = open_file("gone");
    std::vector<int> block(n, 1), large_block(large_count, 3), read(n);
    int token = 0;
    if (rank == 1) {
        MPI_File_write_at(file, 0, block.data(), n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Recv(&token, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int k = 1; k < n; k += 2)
            MPI_File_write_at(file, k * 4, &k, 1, MPI_INT, MPI_STATUS_IGNORE);
        for (int k = 0; k < calls; ++k)
            EXPECT(MPI_File_write_at(file, 1 << 20, large_block.data(), large_count, MPI_INT,
                                     MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 1; k < n; k += 2) block[static_cast<std::size_t>(k)] = k;
    MPI_File_read_at(file, 0, read.data(), n, MPI_INT, MPI_STATUS_IGNORE);
    EXPECT(read == block);
    MPI_File_close(&file);
    auto content = read_back("gone");
    content.resize(n);
    EXPECT(content == block);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path("gone").c_str());
}

// A random sequence of operations, the same on all ranks. One rank acts at a time and then sends a
// message to the next. Every read, and the file at the end, must agree with a model.
void random_histories() {
    constexpr int n = 1 << 19;  // 2 MiB
    const char* seed = std::getenv("ASSAY_TEST_SEED");
    const int steps = seed ? 1500 : 500;
    std::mt19937 random(seed ? static_cast<unsigned>(std::atoi(seed)) : 17u);
    const auto random_below = [&](int limit) {
        return static_cast<int>(random() % static_cast<unsigned>(limit));
    };
    MPI_File file = open_file("history");
    std::vector<int> model, bytes(n);
    int last = 0, token = 0;
    for (int step = 1; step <= steps && failure.empty(); ++step) {
        const int writer = random_below(size), kind = random_below(100);
        const int begin = random_below(n - 1), max_length = kind % 3 ? 600 : n / 4,
                  length = 1 + random_below(std::min(max_length, n - begin));
        const int stride = 2 + random_below(7), parts = 1 + random_below(40), cut = random_below(n);
        if (kind >= 97) {
            // Collective steps.
            if (kind == 97) MPI_Barrier(MPI_COMM_WORLD);
            if (kind == 98) EXPECT(MPI_File_sync(file) == MPI_SUCCESS);
            if (kind == 99) {
                EXPECT(MPI_File_set_size(file, MPI_Offset{cut} * 4) == MPI_SUCCESS);
                model.resize(static_cast<std::size_t>(cut));
            }
            continue;
        }
        if (writer != last && rank == last)
            MPI_Send(&token, 1, MPI_INT, writer, step, MPI_COMM_WORLD);
        if (writer != last && rank == writer)
            MPI_Recv(&token, 1, MPI_INT, last, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        last = writer;
        const auto grow_to = [&](int count) {
            if (static_cast<int>(model.size()) < count)
                model.resize(static_cast<std::size_t>(count));
        };
        if (kind < 45) {
            grow_to(begin + length);
            std::fill_n(model.begin() + begin, length, step);
            std::fill_n(bytes.begin(), length, step);
            if (rank == writer)
                EXPECT(MPI_File_write_at(file, MPI_Offset{begin} * 4, bytes.data(), length, MPI_INT,
                                         MPI_STATUS_IGNORE) == MPI_SUCCESS);
        } else if (kind < 60) {
            for (int k = 0; k < parts && begin + k * stride < n; ++k) {
                const int offset = begin + k * stride;
                grow_to(offset + 1);
                model[static_cast<std::size_t>(offset)] = -step;
                const int value = -step;
                if (rank == writer)
                    MPI_File_write_at(file, MPI_Offset{offset} * 4, &value, 1, MPI_INT,
                                      MPI_STATUS_IGNORE);
            }
        } else if (rank == writer) {
            MPI_Status status;
            EXPECT(MPI_File_read_at(file, MPI_Offset{begin} * 4, bytes.data(), length, MPI_INT,
                                    &status) == MPI_SUCCESS);
            const int available = std::clamp(static_cast<int>(model.size()) - begin, 0, length);
            EXPECT(count_of(status) == available);
            const auto wrong =
                std::mismatch(bytes.begin(), bytes.begin() + available, model.begin() + begin);
            if (wrong.first != bytes.begin() + available && failure.empty())
                failure = "step " + std::to_string(step) + ": " + std::to_string(*wrong.first) +
                          " in place of " + std::to_string(*wrong.second) + " at " +
                          std::to_string(begin + (wrong.first - bytes.begin()));
            MPI_Offset content = 0;
            MPI_File_get_size(file, &content);
            EXPECT(content == static_cast<MPI_Offset>(model.size() * 4));
        }
    }
    if (!failure.empty()) {
        std::printf("bad random-histories: rank %d: %s\n", rank, failure.c_str());
        std::fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks wait for a message
    }
    MPI_File_close(&file);
    EXPECT(read_back("history") == model);
}

}  // namespace

const std::vector<Case> visibility_cases = {{"visible-after-message", visible_after_message},
                                            {"visible-after-barrier", visible_after_barrier},
                                            {"end-after-barrier", end_after_barrier},
                                            {"appended", appended},
                                            {"cut-by-another-handle", cut_by_another_handle},
                                            {"visible-after-collective", visible_after_collective},
                                            {"overwritten-unread", overwritten_unread},
                                            {"lengths", lengths},
                                            {"evicted-from-store", evicted_from_store},
                                            {"random-histories", random_histories}};
