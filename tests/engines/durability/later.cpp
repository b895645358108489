// Durability cases of a later job: they read the file that an earlier job has written with the case
// "closed". Two more cases pass info keys that choose what close waits for (assay_io_until).
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "durability/durability.hpp"

namespace {

// Whether this rank reads the block of every rank.
bool reads_all(MPI_File file, int version) {
    bool is_equal = true;
    std::vector<int> values(block);
    for (int other = 0; other < size; ++other) {
        MPI_Status status;
        is_equal &= MPI_File_read_at(file, MPI_Offset{other} * block * 4, values.data(), block,
                                     MPI_INT, &status) == MPI_SUCCESS &&
                    count_of(status) == block && values == block_of(version, other);
    }
    return is_equal;
}

void reread() {
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    EXPECT(file != MPI_FILE_NULL && reads_all(file, 1));
    if (file != MPI_FILE_NULL) close_file(file);
}

// Another program has changed the file: its first block has version 7.
void reread_changed() {
    MPI_File file = open_file("data", MPI_MODE_RDONLY);
    std::vector<int> values(block);
    EXPECT(MPI_File_read_at(file, 0, values.data(), block, MPI_INT, MPI_STATUS_IGNORE) ==
               MPI_SUCCESS &&
           values == block_of(7, 0));
    close_file(file);
}

// This job overwrites the file and reads it back.
void rewritten() {
    MPI_File file = open_file("data");
    EXPECT(reads_all(file, 1));
    barrier();
    write_block(file, 2);
    MPI_File_sync(file);
    barrier();
    EXPECT(reads_all(file, 2));
    close_file(file);
}

// The last rank writes all blocks, which are closed at level memory. Then the file is opened with
// the MPI's own I/O: every rank reads them and writes its own block, which the job reads
// afterwards.
void opened_without_store() {
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "assay_io_until", "memory");
    MPI_File file = open_file("data", read_write_create, MPI_COMM_WORLD, info);
    for (int other = 0; other < size && rank == size - 1; ++other) {
        const std::vector<int> values = block_of(1, other);
        EXPECT(MPI_File_write_at(file, MPI_Offset{other} * block * 4, values.data(), block, MPI_INT,
                                 MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    barrier();
    EXPECT(reads_all(file, 1));
    close_file(file);
    barrier();
    MPI_Info_set(info, "assay_io", "disable");
    file = open_file("data", MPI_MODE_RDWR, MPI_COMM_WORLD, info);
    EXPECT(reads_all(file, 1));
    barrier();
    write_block(file, 2);
    close_file(file);
    barrier();
    MPI_Info_free(&info);
    file = open_file("data", MPI_MODE_RDONLY);
    EXPECT(reads_all(file, 2));
    close_file(file);
}

// Opens with the info keys of INFO_KEYS ("key=value;key=value"), which only the ranks below
// INFO_RANKS pass, and prints the value of assay_io_until that the file has.
void closed_with_info() {
    const char* keys = std::getenv("INFO_KEYS");
    const char* ranks = std::getenv("INFO_RANKS");
    MPI_Info info, used;
    MPI_Info_create(&info);
    std::istringstream list(keys ? keys : "");
    for (std::string pair; std::getline(list, pair, ';');)
        if (!ranks || rank < std::atoi(ranks))
            MPI_Info_set(info, pair.substr(0, pair.find('=')).c_str(),
                         pair.substr(pair.find('=') + 1).c_str());
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(MPI_COMM_WORLD, path("data").c_str(), read_write_create, info, &file) ==
           MPI_SUCCESS);
    MPI_Info_free(&info);
    EXPECT(MPI_File_get_info(file, &used) == MPI_SUCCESS);
    char level[MPI_MAX_INFO_VAL + 1] = "none";
    int is_set = 0;
    MPI_Info_get(used, "assay_io_until", MPI_MAX_INFO_VAL, level, &is_set);
    MPI_Info_free(&used);
    std::printf("code level %d %s\n", rank, level);
    write_block(file, 1);
    print_code("close", MPI_File_close(&file));
}

}  // namespace

const std::vector<Case> later_job_cases = {{"reread", reread},
                                           {"reread-changed", reread_changed},
                                           {"rewritten", rewritten},
                                           {"opened-without-store", opened_without_store},
                                           {"closed-with-info", closed_with_info}};
