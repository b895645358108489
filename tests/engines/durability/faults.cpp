// Durability cases on file systems that fail. The test that starts them plants the fault
// (faulty_fs, or a full device) and checks the printed error classes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "durability/durability.hpp"

namespace {

void closed() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    print_code("close", MPI_File_close(&file));
    barrier();
    log_mark("closed");
}

void synced() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 3; ++row) {
        write_block(file, row, row);
        print_code("sync", MPI_File_sync(file));
        barrier();
        log_mark("synced");
        barrier();
    }
    print_code("close", MPI_File_close(&file));
    barrier();
    log_mark("closed");
}

// Writes 12 MiB per rank, for a file system that accepts more data than it can store.
void synced_large() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 12; ++row) write_block(file, row, row);
    print_code("sync", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

// A fault of one file does not affect another.
void two_files() {
    MPI_File bad = open_file("data"), good = open_file("good");
    write_block(bad, 1);
    write_block(good, 2);
    set_fault(true);
    print_code("bad", MPI_File_close(&bad));
    print_code("good", MPI_File_close(&good));
    EXPECT(file_holds("good", 2));
    MPI_File later = open_file("later");
    write_block(later, 3);
    print_code("later", MPI_File_close(&later));
    EXPECT(file_holds("later", 3));
}

// One call fails once; all later calls succeed.
void transient() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    set_fault(true);
    print_code("first", MPI_File_close(&file));
    set_fault(false);
    file = open_file("later");
    write_block(file, 2);
    print_code("later", MPI_File_close(&file));
    EXPECT(file_holds("later", 2));
}

// A sync fails while the fault lasts. The next sync writes the data again, because the kernel may
// have dropped the pages that it could not write.
void healed() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    set_fault(false);
    log_mark("healed");
    barrier();
    print_code("healed", MPI_File_sync(file));
    barrier();
    log_mark("synced");
    EXPECT(file_holds("data", 1));
    print_code("close", MPI_File_close(&file));
    EXPECT(file_holds("data", 1));
}

// As `healed`, but close is the failing call, and MPI_Finalize writes the data.
void healed_at_the_end() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    set_fault(true);
    print_code("failing", MPI_File_close(&file));
    set_fault(false);
}

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
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    set_fault(false);
    print_code("idle", MPI_File_sync(file));
    write_block(file, 1, 2);
    print_code("other", MPI_File_sync(file));
    write_block_of_next(file, 2, 0);
    print_code("half", MPI_File_sync(file));
    write_block_of_next(file, 2, 1);
    print_code("all", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

// As `written_again`, but the second lost row is truncated instead of written again.
void cut_off() {
    MPI_File file = open_file("data");
    for (int row = 0; row < 2; ++row) write_block(file, 1, row);
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    set_fault(false);
    write_block(file, 1, 0);
    print_code("half", MPI_File_sync(file));
    EXPECT(MPI_File_set_size(file, MPI_Offset{size} * block * 4) == MPI_SUCCESS);
    print_code("cut", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

// Blocks that were written directly are written again in small pieces, which go into the store.
// Then a sync fails. The store has the data, so the next sync writes them again.
void overwritten_in_pieces() {
    constexpr int piece = 256;  // ints: less than is written directly
    MPI_File file = open_file("data");
    write_block(file, 1);
    MPI_Datatype every_second;
    MPI_Type_vector(block / piece / 2, piece, 2 * piece, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    const auto values = block_of(2, rank);
    for (const int first : {0, piece}) {
        EXPECT(MPI_File_set_view(file, MPI_Offset{rank * block + first} * 4, MPI_INT, every_second,
                                 "native", MPI_INFO_NULL) == MPI_SUCCESS);
        EXPECT(MPI_File_write_at(file, 0, values.data() + first, 1, every_second,
                                 MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    MPI_Type_free(&every_second);
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    set_fault(false);
    print_code("again", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

// The failing call is close. The file is opened again, and another row or the same one is written.
void reopen_after_a_failure(int row) {
    MPI_File file = open_file("data");
    write_block(file, 1);
    set_fault(true);
    print_code("failing", MPI_File_close(&file));
    set_fault(false);
    file = open_file("data");
    write_block(file, 2, row);
    print_code("sync", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

void reopened_for_more() { reopen_after_a_failure(1); }
void reopened_for_the_same() { reopen_after_a_failure(0); }

// Each rank writes the block of the next one and closes the file, then writes its own block over
// the older data of another rank. The fault begins before the first close and does not end.
void superseded() {
    MPI_File file = open_file("data");
    write_block_of_next(file, 1, 0);
    set_fault(true);
    print_code("first", MPI_File_close(&file));
    file = open_file("data");
    write_block(file, 2);
    print_code("second", MPI_File_close(&file));
}

// Writes more than a store holds to a file system that fails: a write returns an error, and none
// waits for ever.
void ring_full() {
    constexpr int rows = 200;
    MPI_File file = open_file("data");
    const auto own_values = block_of(1, rank);
    int code = MPI_SUCCESS;
    for (int row = 0; row < rows && !code; ++row)
        code = MPI_File_write_at(file, MPI_Offset{row * size + rank} * block * 4, own_values.data(),
                                 block, MPI_INT, MPI_STATUS_IGNORE);
    print_code("write", code);
    print_code("close", MPI_File_close(&file));
}

// Reads a file that this job has not written, while reads fail.
void read_error() {
    on_first_rank([] {
        std::ofstream(path("data"), std::ios::binary);
        overwrite("data", block_of(1, 0));
    });
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    set_fault(true);
    std::vector<int> read(1000, -1);
    print_code("read", MPI_File_read_at(file, 0, read.data(), 1000, MPI_INT, MPI_STATUS_IGNORE));
    EXPECT(read != std::vector<int>(1000, 0));
    set_fault(false);
    EXPECT(MPI_File_read_at(file, 0, read.data(), 1000, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    close_file(file);
}

// Two nodes write the same blocks in turn, before anything is drained. Each node's drain writes its
// own data, so older data overwrite newer ones, and close must write the newer ones again. In this
// case the file cannot be opened for that, or was renamed (`rename_it`).
void write_conflicting_blocks(bool rename_it) {
    constexpr int blocks = 16, n = 4096;
    if (size < 2) return;
    MPI_File file = open_file("data");
    write_block(file, 1, 1);
    MPI_File_sync(file);  // each drain knows the file now
    std::vector<int> expected;
    for (int k = 0; k < blocks; ++k) {
        const int last = k % 2;
        for (const int writer : {1 - last, last}) {
            const auto own_values = consecutive(n, (k * 2 + writer) * n);
            if (rank == writer)
                EXPECT(MPI_File_write_at(file, k * n * 4, own_values.data(), n, MPI_INT,
                                         MPI_STATUS_IGNORE) == MPI_SUCCESS);
            if (writer == last)
                expected.insert(expected.end(), own_values.begin(), own_values.end());
            barrier();
        }
    }
    const char* name = rename_it ? "moved" : "data";
    if (rename_it) on_first_rank([] { rename(path("data").c_str(), path("moved").c_str()); });
    else set_fault(true);
    int code = MPI_File_close(&file), worst = 0;
    if (!rename_it) set_fault(false);
    print_code("close", code);
    code = code != MPI_SUCCESS;
    MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    EXPECT(!rename_it || worst == 0);
    if (worst) return;
    auto content = read_back(name);
    content.resize(expected.size());
    EXPECT(content == expected);
}

void contested() { write_conflicting_blocks(false); }
void contested_and_renamed() { write_conflicting_blocks(true); }

// The second rank overwrites a block of the first one. Close fails on the node of the first rank,
// which writes its data again at the end; the other node has closed the file successfully.
void contested_by_a_retry() {
    MPI_File file = open_file("data");
    write_block(file, 1);
    if (rank == 0) write_block(file, 1, 1);
    barrier();
    const auto newer = block_of(2, 0);
    if (rank == 1)
        EXPECT(MPI_File_write_at(file, MPI_Offset{size} * block * 4, newer.data(), block, MPI_INT,
                                 MPI_STATUS_IGNORE) == MPI_SUCCESS);
    set_fault(true);
    print_code("close", MPI_File_close(&file));
}

MPI_File open_until(const char* level) {
    MPI_File file = MPI_FILE_NULL;
    MPI_Info info = MPI_INFO_NULL;
    MPI_Info_create(&info);
    MPI_Info_set(info, "assay_io_until", level);
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("data").c_str(), read_write_create, info, &file) ==
           MPI_SUCCESS);
    MPI_Info_free(&info);
    return file;
}

// A file is closed at level memory. While the fsync of the background drain waits, and then fails,
// it is written again at level file.
void levels_mixed() {
    set_fault(true);
    MPI_File file = open_until("memory");
    write_block(file, 1);
    close_file(file);
    on_first_rank([] {
        const std::string log = std::getenv("FAULTY_FS_LOG");
        for (std::string text; text.find(" syncing ") == std::string::npos; usleep(1000)) {
            std::ifstream in(log);
            text.assign(std::istreambuf_iterator<char>(in), {});
        }
    });
    file = open_until("file");
    write_block(file, 2);
    set_fault(false);
    print_code("sync", MPI_File_sync(file));
    print_code("close", MPI_File_close(&file));
}

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

const std::vector<Case> fault_cases = {{"closed", closed},
                                       {"synced", synced},
                                       {"synced-large", synced_large},
                                       {"two-files", two_files},
                                       {"transient", transient},
                                       {"healed", healed},
                                       {"healed-at-the-end", healed_at_the_end},
                                       {"written-again", written_again},
                                       {"cut-off", cut_off},
                                       {"overwritten-in-pieces", overwritten_in_pieces},
                                       {"reopened-for-more", reopened_for_more},
                                       {"reopened-for-the-same", reopened_for_the_same},
                                       {"superseded", superseded},
                                       {"ring-full", ring_full},
                                       {"read-error", read_error},
                                       {"contested", contested},
                                       {"contested-and-renamed", contested_and_renamed},
                                       {"contested-by-a-retry", contested_by_a_retry},
                                       {"levels-mixed", levels_mixed},
                                       {"abandoned", abandoned},
                                       {"two-abandoned", two_abandoned}};
