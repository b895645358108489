// Durability cases on several handles and several openings of a file: what one of them writes,
// cuts or closes, and what changes between two of them.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "durability/durability.hpp"

namespace {

void write_first_block(MPI_File file, int version) {
    const auto values = block_of(version, 0);
    EXPECT(MPI_File_write_at(file, 0, values.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
}

bool reads_first_block(MPI_File file, int version) {
    std::vector<int> values(block, -1);
    return MPI_File_read_at(file, 0, values.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS &&
           values == block_of(version, 0);
}

// The first rank writes over the second one's bytes. The second one's data of another file are not
// durable when the file is opened by another name.
void renamed_between_openings() {
    MPI_File other = open_file("other"), file = open_file("data");
    if (rank == 1) write_first_block(other, 1);
    if (rank == 1) write_first_block(file, 1);
    sync_all(file);
    if (rank == 0) write_first_block(file, 2);
    sync_all(file);
    close_file(file);
    on_first_rank([] { EXPECT(rename(path("data").c_str(), path("renamed").c_str()) == 0); });
    file = open_file("renamed");
    EXPECT(reads_first_block(file, 2));
    close_file(file);
    close_file(other);
}

// A rank reads after a cut, without a call that communicates between the two.
void read_after_a_cut() {
    MPI_File file = open_file("data");
    write_first_block(file, 1);
    sync_all(file);
    EXPECT(MPI_File_set_size(file, 4) == MPI_SUCCESS);
    std::vector<int> values(block, -1);
    MPI_Status status;
    EXPECT(MPI_File_read_at(file, 0, values.data(), block, MPI_INT, &status) == MPI_SUCCESS);
    int count = -1;
    MPI_Get_count(&status, MPI_INT, &count);
    EXPECT(count == 1);
    close_file(file);
}

// A rank closes a handle of its own while another node's data are in the store.
void read_after_an_own_close() {
    MPI_File file = open_file("data"), own = MPI_FILE_NULL;
    if (rank == 0) own = open_file("data", MPI_MODE_RDWR, MPI_COMM_SELF);
    barrier();
    if (rank == 1) write_first_block(file, 1);
    barrier();
    if (rank == 0) close_file(own);
    EXPECT(reads_first_block(file, 1));
    close_file(file);
}

// A node has written the file alone. The others have none of its data in their stores.
void changed_by_another_program() {
    if (rank == 1) {
        MPI_File own = open_file("data", read_write_create, MPI_COMM_SELF);
        write_first_block(own, 1);
        close_file(own);
    }
    on_first_rank([] { overwrite("data", block_of(2, 0)); });
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    EXPECT(reads_first_block(file, 2));
    close_file(file);
}

void cut_through_another_handle() {
    constexpr int left = 10;
    on_first_rank([] {
        std::ofstream(path("data"), std::ios::binary);
        overwrite("data", block_of(1, 0));
    });
    MPI_File file = open_file("data", MPI_MODE_RDWR),
             own = open_file("data", MPI_MODE_RDONLY, MPI_COMM_SELF);
    EXPECT(reads_first_block(own, 1));
    barrier();
    EXPECT(MPI_File_set_size(file, left) == MPI_SUCCESS);
    sync_all(file);
    char bytes[2 * left];
    MPI_Status status;
    EXPECT(MPI_File_read_at(own, 0, bytes, sizeof bytes, MPI_BYTE, &status) == MPI_SUCCESS);
    EXPECT(count_of(status, MPI_BYTE) == left);
    close_file(own);
    close_file(file);
}

void no_type() {
    MPI_File file = open_file("data");
    int value = 0;
    MPI_Status* const ignored = MPI_STATUS_IGNORE;
    EXPECT(class_of(MPI_File_write_at(file, 0, &value, 1, MPI_DATATYPE_NULL, ignored)) ==
           MPI_ERR_TYPE);
    EXPECT(class_of(MPI_File_read_at(file, 0, &value, 1, MPI_DATATYPE_NULL, ignored)) ==
           MPI_ERR_TYPE);
    close_file(file);
}

// Open MPI takes a name as it is. A file with the name behind the colon stays as it is.
void name_with_a_colon() {
#ifdef OMPI_MAJOR_VERSION
    EXPECT(chdir(folder.c_str()) == 0);
    on_first_rank([] {
        std::ofstream(path("00"), std::ios::binary);
        overwrite("00", block_of(2, 0));
    });
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(MPI_COMM_WORLD, "out_12:00", read_write_create, MPI_INFO_NULL, &file) ==
           MPI_SUCCESS);
    if (rank == 0) write_first_block(file, 1);
    close_file(file);
    barrier();
    EXPECT(read_back("00") == block_of(2, 0));
    EXPECT(read_back("out_12:00") == block_of(1, 0));
#endif
}

// A library closes its files when MPI_COMM_SELF is freed. The test looks at them.
MPI_File log_file = MPI_FILE_NULL, scratch_file = MPI_FILE_NULL;

int close_files(MPI_Comm, int, void*, void*) {
    MPI_File_write(log_file, "end!", 4, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_close(&log_file);
    MPI_File_close(&scratch_file);
    return MPI_SUCCESS;
}

void closed_in_finalize() {
    const std::string number = std::to_string(rank);
    log_file = open_file(("log" + number).c_str(), read_write_create, MPI_COMM_SELF);
    scratch_file = open_file(("scratch" + number).c_str(),
                             read_write_create | MPI_MODE_DELETE_ON_CLOSE, MPI_COMM_SELF);
    EXPECT(MPI_File_write(log_file, "begin", 5, MPI_CHAR, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    write_first_block(scratch_file, 1);
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_files, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

}  // namespace

const std::vector<Case> handle_cases = {{"renamed-between-openings", renamed_between_openings},
                                        {"read-after-an-own-close", read_after_an_own_close},
                                        {"changed-by-another-program", changed_by_another_program},
                                        {"read-after-a-cut", read_after_a_cut},
                                        {"cut-through-another-handle", cut_through_another_handle},
                                        {"no-type", no_type},
                                        {"name-with-a-colon", name_with_a_colon},
                                        {"closed-in-finalize", closed_in_finalize}};
