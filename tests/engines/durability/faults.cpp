// Programs for file systems that fail. The test that starts them plants the fault (faulty_fs, or a
// device that is full) and judges the printed error classes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "durability/durability.hpp"

namespace {

// Faults occur while this file exists (FAULTY_FS_WHILE).
void plant(bool active) {
    on_first_rank([=] {
        const char* condition = std::getenv("FAULTY_FS_WHILE");
        EXPECT(condition != nullptr);
        if (!condition) return;
        if (active) close(open(condition, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        else unlink(condition);
    });
}

void closed() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    say("close", MPI_File_close(&file));
    barrier();
    mark("closed");
}

void synced() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 3; ++row) {
        write_block(file, row, row);
        say("sync", MPI_File_sync(file));
        barrier();
        mark("synced");
        barrier();
    }
    say("close", MPI_File_close(&file));
    barrier();
    mark("closed");
}

// For a file system that cannot keep what it accepted: 12 MiB a rank.
void synced_large() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 12; ++row) write_block(file, row, row);
    say("sync", MPI_File_sync(file));
    say("close", MPI_File_close(&file));
}

// A fault of one file does not concern another.
void two_files() {
    MPI_File bad = open_file("data"), good = open_file("good");
    write_block(bad, 1);
    write_block(good, 2);
    plant(true);
    say("bad", MPI_File_close(&bad));
    say("good", MPI_File_close(&good));
    EXPECT(holds("good", 2));
    MPI_File later = open_file("later");
    write_block(later, 3);
    say("later", MPI_File_close(&later));
    EXPECT(holds("later", 3));
}

// One call fails, once. What comes afterwards works.
void transient() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    plant(true);
    say("first", MPI_File_close(&file));
    plant(false);
    file = open_file("later");
    write_block(file, 2);
    say("later", MPI_File_close(&file));
    EXPECT(holds("later", 2));
}

// A sync fails while the fault lasts. The next one writes the data again, because the kernel may
// have dropped what it could not write.
void healed() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    plant(true);
    say("failing", MPI_File_sync(file));
    plant(false);
    mark("healed");
    barrier();
    say("healed", MPI_File_sync(file));
    barrier();
    mark("synced");
    EXPECT(holds("data", 1));
    say("close", MPI_File_close(&file));
    EXPECT(holds("data", 1));
}

// As before, with close as the failing call; the end of the program writes the data.
void healed_at_the_end() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    plant(true);
    say("failing", MPI_File_close(&file));
    plant(false);
}

// This rank writes the block of the next one.
void write_block_of_next(MPI_File file, int version, int row) {
    const int next = (rank + 1) % size;
    const auto values = block_of(version, next);
    EXPECT(MPI_File_write_at(file, MPI_Offset{row * size + next} * block * 4, values.data(), block,
                             MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

// An fsync fails for two rows. The rows are written again, one after the other, by other ranks.
void written_again() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 2; ++row) write_block(file, 1, row);
    plant(true);
    say("failing", MPI_File_sync(file));
    plant(false);
    say("idle", MPI_File_sync(file));
    write_block(file, 1, 2);
    say("other", MPI_File_sync(file));
    write_block_of_next(file, 2, 0);
    say("half", MPI_File_sync(file));
    write_block_of_next(file, 2, 1);
    say("all", MPI_File_sync(file));
    say("close", MPI_File_close(&file));
}

// As before; what is missing is cut off instead.
void cut_off() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 2; ++row) write_block(file, 1, row);
    plant(true);
    say("failing", MPI_File_sync(file));
    plant(false);
    write_block(file, 1, 0);
    say("half", MPI_File_sync(file));
    EXPECT(MPI_File_set_size(file, MPI_Offset{size} * block * 4) == MPI_SUCCESS);
    say("cut", MPI_File_sync(file));
    say("close", MPI_File_close(&file));
}

// The failing call is close. The file is opened again, and another row or the same one is written.
void reopen_after_a_failure(int row) {
    MPI_File file = open_file("data");
    write_block(file, 1);
    plant(true);
    say("failing", MPI_File_close(&file));
    plant(false);
    file = open_file("data");
    write_block(file, 2, row);
    say("sync", MPI_File_sync(file));
    say("close", MPI_File_close(&file));
}

void reopened_for_more() { reopen_after_a_failure(1); }
void reopened_for_the_same() { reopen_after_a_failure(0); }

// Writes more than a store holds to a file system that fails: a write says so, none waits for ever.
void ring_full() {
    constexpr int rows = 200;
    MPI_File file = open_file("data");
    const auto mine = block_of(1, rank);
    int code = MPI_SUCCESS;
    for (int row = 0; row < rows && !code; ++row)
        code = MPI_File_write_at(file, MPI_Offset{row * size + rank} * block * 4, mine.data(),
                                 block, MPI_INT, MPI_STATUS_IGNORE);
    say("write", code);
    say("close", MPI_File_close(&file));
}

// The file exists and has been read by nobody. No data of this job are in it.
void read_error() {
    on_first_rank([] {
        std::ofstream(path("data"), std::ios::binary);
        overwrite("data", block_of(1, 0));
    });
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    plant(true);
    std::vector<int> read(1000, -1);
    say("read", MPI_File_read_at(file, 0, read.data(), 1000, MPI_INT, MPI_STATUS_IGNORE));
    EXPECT(read != std::vector<int>(1000, 0));
    plant(false);
    EXPECT(MPI_File_read_at(file, 0, read.data(), 1000, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    close_file(file);
}

// Blocks that two nodes have written in turn, before anything is drained. Each drain writes its
// node's data, so one writes some of them over newer ones, and these must be put right before close
// succeeds. Here the file cannot be opened for that, or not by its old name.
void contest(bool rename_it) {
    constexpr int blocks = 16, n = 4096;
    if (size < 2) return;
    MPI_File file = open_file("data");
    write_block(file, 1, 1);
    MPI_File_sync(file);  // each drain knows the file now
    std::vector<int> expected;
    for (int k = 0; k < blocks; ++k) {
        const int last = k % 2;
        for (const int writer : {1 - last, last}) {
            const auto mine = filled(n, (k * 2 + writer) * n);
            if (rank == writer)
                EXPECT(MPI_File_write_at(file, k * n * 4, mine.data(), n, MPI_INT,
                                         MPI_STATUS_IGNORE) == MPI_SUCCESS);
            if (writer == last) expected.insert(expected.end(), mine.begin(), mine.end());
            barrier();
        }
    }
    const char* name = rename_it ? "moved" : "data";
    if (rename_it) on_first_rank([] { rename(path("data").c_str(), path("moved").c_str()); });
    else plant(true);
    int code = MPI_File_close(&file), worst = 0;
    if (!rename_it) plant(false);
    say("close", code);
    code = code != MPI_SUCCESS;
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    EXPECT(!rename_it || worst == 0);
    if (worst) return;
    auto content = read_back(name);
    content.resize(expected.size());
    EXPECT(content == expected);
}

void contested() { contest(false); }
void contested_and_renamed() { contest(true); }

// Every rank writes and dies.
void abandoned() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    barrier();
    raise(SIGKILL);
}

void two_abandoned() {
    MPI_File file = open_file("data"), other = open_file("other");
    write_block(file, 1);
    write_block(other, 2);
    barrier();
    raise(SIGKILL);
}

}  // namespace

const std::vector<Case> faults = {{"closed", closed},
                                  {"synced", synced},
                                  {"synced-large", synced_large},
                                  {"two-files", two_files},
                                  {"transient", transient},
                                  {"healed", healed},
                                  {"healed-at-the-end", healed_at_the_end},
                                  {"written-again", written_again},
                                  {"cut-off", cut_off},
                                  {"reopened-for-more", reopened_for_more},
                                  {"reopened-for-the-same", reopened_for_the_same},
                                  {"ring-full", ring_full},
                                  {"read-error", read_error},
                                  {"contested", contested},
                                  {"contested-and-renamed", contested_and_renamed},
                                  {"abandoned", abandoned},
                                  {"two-abandoned", two_abandoned}};
