// Durability cases with files that are renamed, replaced or removed while their data are not
// drained.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "durability/durability.hpp"

namespace {

bool exists(const char* name) { return access(path(name).c_str(), F_OK) == 0; }

void rename_file(const char* from, const char* to) {
    EXPECT(rename(path(from).c_str(), path(to).c_str()) == 0);
}

// Data from before and after the rename are in the file with the new name.
void renamed_while_open() {
    MPI_File file = open_file("old-name");
    write_block(file, 1, 0);
    on_first_rank([] { rename_file("old-name", "new-name"); });
    write_block(file, 2, 1);
    close_file(file);
    EXPECT(!exists("old-name"));
    EXPECT(file_holds("new-name", 1, 0) && file_holds("new-name", 2, 1));
}

// The store knows the file by its old name. Data that are written through the new name reach the
// file.
void renamed_then_opened() {
    for (int round = 0; round < 4; ++round) {
        const std::string from = "a" + std::to_string(round), to = "b" + std::to_string(round);
        MPI_File file = open_file(from.c_str());
        write_block(file, 1);
        close_file(file);
        on_first_rank([&] { rename_file(from.c_str(), to.c_str()); });
        file = open_file(to.c_str());
        EXPECT(rank_reads(file, 1));
        write_block(file, 2);
        close_file(file);
        EXPECT(!exists(from.c_str()));
        EXPECT(file_holds(to.c_str(), 2));
        barrier();
    }
}

// Replaces a checkpoint: writes it with a temporary name, and renames it over the previous one.
void renamed_over() {
    for (int round = 1; round <= 5; ++round) {
        MPI_File file = open_file("checkpoint.tmp");
        write_block(file, round);
        close_file(file);
        on_first_rank([] { rename_file("checkpoint.tmp", "checkpoint"); });
        file = open_file("checkpoint", MPI_MODE_RDONLY);
        EXPECT(rank_reads(file, round));
        close_file(file);
        EXPECT(file_holds("checkpoint", round));
        barrier();
    }
}

void folder_moved_while_open() {
    on_first_rank([] { EXPECT(mkdir(path("here").c_str(), 0755) == 0); });
    MPI_File file = open_file("here/file");
    write_block(file, 1, 0);
    on_first_rank([] { rename_file("here", "there"); });
    write_block(file, 2, 1);
    close_file(file);
    EXPECT(!exists("here"));
    EXPECT(file_holds("there/file", 1, 0) && file_holds("there/file", 2, 1));
}

// Another file gets the name of an open file: each file keeps its own data.
void replaced_while_open() {
    const std::vector<int> foreign(1000, -5);
    MPI_File file = open_file("replaced");
    write_block(file, 1);
    on_first_rank([&] {
        rename_file("replaced", "kept");
        std::ofstream(path("replaced"), std::ios::binary);
        overwrite("replaced", foreign);
    });
    write_block(file, 2);
    close_file(file);
    EXPECT(read_back("replaced") == foreign);
    EXPECT(file_holds("kept", 2));
}

// Writes more than a store holds, so that all older data are evicted.
void fill_store() {
    constexpr int rows = 160;
    MPI_File file = open_file("filler");
    for (int row = 0; row < rows; ++row) write_block(file, row, row % 8);
    close_file(file);
    on_first_rank([] { unlink(path("filler").c_str()); });
}

// A removed file keeps its data as long as any rank has it open. The first rank writes the file,
// removes and closes it; the last rank reads it. The read must return the data, as on a file
// system.
void removed_while_read(void (*remove)(const std::string& name)) {
    const int reader = size - 1;
    MPI_File file = open_file("removed", read_write_create, MPI_COMM_SELF);
    const auto expected = block_of(3, 0);
    if (rank == 0)
        EXPECT(MPI_File_write_at(file, 0, expected.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS);
    barrier();
    if (rank == 0) remove(path("removed"));
    if (rank == 0 && reader != 0) close_file(file);
    barrier();
    fill_store();
    if (rank == reader) {
        std::vector<int> read(block, -1);
        MPI_Status status;
        EXPECT(MPI_File_read_at(file, 0, read.data(), block, MPI_INT, &status) == MPI_SUCCESS);
        EXPECT(count_of(status) == block && read == expected);
    }
    if (file != MPI_FILE_NULL) close_file(file);
    EXPECT(!exists("removed"));
}

void unlinked_while_read() {
    removed_while_read([](const std::string& name) { EXPECT(unlink(name.c_str()) == 0); });
}

void deleted_while_read() {
    removed_while_read([](const std::string& name) {
        EXPECT(MPI_File_delete(name.c_str(), MPI_INFO_NULL) == MPI_SUCCESS);
    });
}

// A scratch file without a name, larger than the store.
void unlinked_scratch() {
    constexpr int rows = 150;
    MPI_File file = open_file("scratch");
    on_first_rank([] { EXPECT(unlink(path("scratch").c_str()) == 0); });
    for (int row = 0; row < rows; ++row) write_block(file, row, row);
    barrier();
    for (int row = 0; row < rows; ++row) EXPECT(rank_reads(file, row, row));
    close_file(file);
}

void link_file(const char* from, const char* to) {
    EXPECT(link(path(from).c_str(), path(to).c_str()) == 0);
}

// MPI_File_delete removes a name; the data stay as long as the file has another one.
void linked_and_deleted_while_open() {
    MPI_File file = open_file("first-name");
    write_block(file, 1);
    on_first_rank([] {
        link_file("first-name", "second-name");
        EXPECT(MPI_File_delete(path("first-name").c_str(), MPI_INFO_NULL) == MPI_SUCCESS);
    });
    close_file(file);
    EXPECT(!exists("first-name"));
    EXPECT(file_holds("second-name", 1));
}

// The same after the file was closed. Data that are written through the other name reach the file.
void linked_and_deleted() {
    MPI_File file = open_file("first-name");
    write_block(file, 1);
    close_file(file);
    on_first_rank([] {
        link_file("first-name", "second-name");
        EXPECT(MPI_File_delete(path("first-name").c_str(), MPI_INFO_NULL) == MPI_SUCCESS);
    });
    file = open_file("second-name");
    EXPECT(rank_reads(file, 1));
    write_block(file, 2);
    close_file(file);
    EXPECT(file_holds("second-name", 2));
}

void linked_and_deleted_on_close() {
    MPI_File file = open_file("first-name", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
    write_block(file, 1);
    on_first_rank([] { link_file("first-name", "second-name"); });
    close_file(file);
    EXPECT(!exists("first-name"));
    EXPECT(file_holds("second-name", 1));
}

// Removes a link of an earlier step, as programs do with "latest", after its target was closed.
void link_deleted() {
    on_first_rank([] { EXPECT(symlink("target", path("latest").c_str()) == 0); });
    MPI_File file = open_file("target");
    write_block(file, 1);
    close_file(file);
    on_first_rank(
        [] { EXPECT(MPI_File_delete(path("latest").c_str(), MPI_INFO_NULL) == MPI_SUCCESS); });
    EXPECT(!exists("latest"));
    file = open_file("target", MPI_MODE_RDONLY);
    EXPECT(rank_reads(file, 1));
    close_file(file);
}

// MPI_MODE_DELETE_ON_CLOSE removes the name that was opened, not the file to which it leads.
void link_deleted_on_close() {
    MPI_File file = open_file("target");
    write_block(file, 1, 0);
    close_file(file);
    on_first_rank([] { EXPECT(symlink("target", path("latest").c_str()) == 0); });
    file = open_file("latest", MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    write_block(file, 2, 1);
    close_file(file);
    EXPECT(!exists("latest"));
    EXPECT(file_holds("target", 1, 0) && file_holds("target", 2, 1));
}

// The path of the file belongs to another file by the time it is closed.
void renamed_and_deleted_on_close() {
    MPI_File file = open_file("old-name", read_write_create | MPI_MODE_DELETE_ON_CLOSE);
    write_block(file, 1);
    on_first_rank([] {
        rename_file("old-name", "new-name");
        std::FILE* another = std::fopen(path("old-name").c_str(), "w");
        EXPECT(another && std::fclose(another) == 0);
    });
    close_file(file);
    EXPECT(exists("old-name"));
    EXPECT(file_holds("new-name", 1));
}

}  // namespace

const std::vector<Case> name_cases = {
    {"renamed-while-open", renamed_while_open},
    {"renamed-then-opened", renamed_then_opened},
    {"renamed-over", renamed_over},
    {"folder-moved-while-open", folder_moved_while_open},
    {"replaced-while-open", replaced_while_open},
    {"unlinked-while-read", unlinked_while_read},
    {"deleted-while-read", deleted_while_read},
    {"unlinked-scratch", unlinked_scratch},
    {"linked-and-deleted-while-open", linked_and_deleted_while_open},
    {"linked-and-deleted", linked_and_deleted},
    {"linked-and-deleted-on-close", linked_and_deleted_on_close},
    {"link-deleted", link_deleted},
    {"link-deleted-on-close", link_deleted_on_close},
    {"renamed-and-deleted-on-close", renamed_and_deleted_on_close}};
