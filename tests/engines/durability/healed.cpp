// Durability cases on what must not last: a file system that is well again, and a file that cannot
// be written any more, must not fail later calls.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "durability/durability.hpp"

namespace {

// The ranks write two rows, then the second one writes the block of the first one again.
void write_contested_rows(MPI_File file) {
    for (const int row : {0, 1}) write_block(file, 1, row);
    barrier();
    const auto newer = block_of(2, 0);
    if (rank == 1)
        EXPECT(MPI_File_write_at(file, 0, newer.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
    barrier();
}

// The fault is met by one handle after the other. All bytes are in the store, so none of them may
// report it when it has ended.
void healed_through_two_handles() {
    MPI_File file = open_file("data"), other = open_file("data");
    write_block(file, 1, 0);
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    write_block(file, 1, 1);
    write_block(other, 1, 2);
    print_code("other", MPI_File_sync(other));
    set_fault(false);
    print_code("healed", MPI_File_close(&file));
    print_code("healed", MPI_File_close(&other));
    EXPECT(file_holds("data", 1, 0) && file_holds("data", 1, 1) && file_holds("data", 1, 2));
}

// Two nodes have written the same bytes of a file that loses its name while it is open, and whose
// close fails. Its data are dropped, and later files are written.
void removed_then_failed() {
    MPI_File file = open_file("data");
    write_contested_rows(file);
    on_first_rank([] { EXPECT(unlink(path("data").c_str()) == 0); });
    set_fault(true);
    print_code("failing", MPI_File_close(&file));
    set_fault(false);
    file = open_file("later");
    write_contested_rows(file);
    print_code("later", MPI_File_close(&file));
}

// Each of two nodes has written the newest bytes over some of the other's, and a sync has failed on
// both. Later writes need the space of these data.
void contested_both_ways() {
    constexpr int rows = 40;
    MPI_File file = open_file("data");
    write_block(file, 1);
    barrier();
    const auto newer = block_of(2, 1 - rank);
    EXPECT(MPI_File_write_at(file, MPI_Offset{1 - rank} * block * 4, newer.data(), block, MPI_INT,
                             MPI_STATUS_IGNORE) == MPI_SUCCESS);
    barrier();
    set_fault(true);
    print_code("failing", MPI_File_sync(file));
    set_fault(false);
    const auto values = block_of(1, rank);
    int code = MPI_SUCCESS;
    for (int row = 1; row < rows && !code; ++row)
        code = MPI_File_write_at(file, MPI_Offset{row * size + rank} * block * 4, values.data(),
                                 block, MPI_INT, MPI_STATUS_IGNORE);
    print_code("healed", code);
    print_code("healed", MPI_File_close(&file));
    EXPECT(file_holds("data", 2, 0));
    for (int row = 1; row < rows; ++row) EXPECT(file_holds("data", 1, row));
}

// Two nodes have written the same bytes of a file through a communicator that lacks a rank, so that
// they stay unsettled. After its close it gets another name, or none. Later writes need the space
// of its data.
void written_by_some_ranks(void (*change)(const std::string& name)) {
    MPI_Comm some = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &some);
    const auto own_values = block_of(1 + rank, 0);
    MPI_File file = MPI_FILE_NULL;
    if (some != MPI_COMM_NULL) {
        file = open_file("data", read_write_create, some);
        for (int writer = 0; writer < 2; ++writer) {
            if (rank == writer)
                EXPECT(MPI_File_write_at(file, 0, own_values.data(), block, MPI_INT,
                                         MPI_STATUS_IGNORE) == MPI_SUCCESS);
            MPI_Barrier(some);
        }
        close_file(file);
        MPI_Comm_free(&some);
    }
    on_first_rank([=] { change(path("data")); });
    constexpr int rows = 160;
    file = open_file("filler");
    for (int row = 0; row < rows && failure.empty(); ++row) write_block(file, row, row % 8);
    close_file(file);
    const auto content = read_back("moved");
    EXPECT(content.empty() || content == block_of(2, 0));
}

void renamed_after_close_by_some() {
    written_by_some_ranks(
        [](const std::string& name) { EXPECT(rename(name.c_str(), path("moved").c_str()) == 0); });
}

void removed_after_close_by_some() {
    written_by_some_ranks([](const std::string& name) { EXPECT(unlink(name.c_str()) == 0); });
}

// More files than a rank keeps open after their close cannot be written, and are moved. When the
// file system is well again, the end of the job writes them: the rank has kept their descriptors.
void moved_after_failed_close() {
    constexpr int count = 80;
    const auto name_of = [](int number) { return "many" + std::to_string(number); };
    set_fault(true);
    for (int k = 0; k < count; ++k) {
        MPI_File file = open_file(name_of(k).c_str());
        const int value = k * size + rank;
        EXPECT(MPI_File_write_at(file, rank * 4, &value, 1, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
        EXPECT(MPI_File_close(&file) != MPI_SUCCESS);
    }
    on_first_rank([&] {
        EXPECT(mkdir(path("elsewhere").c_str(), 0700) == 0);
        for (int k = 0; k < count; ++k)
            EXPECT(rename(path(name_of(k).c_str()).c_str(),
                          path(("elsewhere/" + name_of(k)).c_str()).c_str()) == 0);
    });
    set_fault(false);
}

}  // namespace

const std::vector<Case> healed_cases = {
    {"moved-after-failed-close", moved_after_failed_close},
    {"healed-through-two-handles", healed_through_two_handles},
    {"contested-both-ways", contested_both_ways},
    {"removed-then-failed", removed_then_failed},
    {"renamed-after-close-by-some", renamed_after_close_by_some},
    {"removed-after-close-by-some", removed_after_close_by_some}};
