// Durability cases with many files, few free descriptors, or little free space.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "durability/durability.hpp"

namespace {

std::string numbered_name(const char* stem, int number) { return stem + std::to_string(number); }

// Every rank writes its own data into each of `count` files that are open at the same time.
void write_files_open_together(int count) {
    constexpr int n = 1000;
    std::vector<MPI_File> files(static_cast<std::size_t>(count));
    for (int k = 0; k < count; ++k)
        files[static_cast<std::size_t>(k)] = open_file(numbered_name("many", k).c_str());
    for (int k = 0; k < count; ++k) {
        const auto own_values = consecutive(n, (k * size + rank) * n);
        EXPECT(MPI_File_write_at(files[static_cast<std::size_t>(k)], rank * n * 4,
                                 own_values.data(), n, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    for (auto& file : files) close_file(file);
    for (int k = 0; k < count && failure.empty(); ++k) {
        const std::string name = numbered_name("many", k);
        if (read_back(name.c_str()) != consecutive(n * size, k * size * n))
            failure = name + " has " + std::to_string(read_back(name.c_str()).size()) +
                      " ints, or those of another file";
    }
}

void files_300() { write_files_open_together(300); }
void files_512() { write_files_open_together(512); }

// Each file is closed before the next one is opened, so few descriptors suffice.
void files_in_turn() {
    for (int k = 0; k < 100; ++k) {
        const std::string name = numbered_name("turn", k);
        MPI_File file = open_file(name.c_str());
        write_block(file, k);
        close_file(file);
        barrier();
        EXPECT(file_holds(name.c_str(), k));
        barrier();
        if (rank == 0) unlink(path(name.c_str()).c_str());
        if (!failure.empty()) failure = name + ": " + failure;
        int bad = !failure.empty(), any = 0;
        MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any) return;
    }
}

// With few free descriptors, opening or reading a file may fail, but a read never returns zeros in
// place of the data.
void last_descriptors() {
    constexpr int n = 1024;
    const std::vector<int> expected(n, 0x41414141);
    on_first_rank([&] {
        std::ofstream(path("letters"), std::ios::binary);
        overwrite("letters", expected);
    });
    std::vector<int> descriptors;
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) descriptors.push_back(fd);
    for (int spare = 1; spare <= 8; ++spare) {
        close(descriptors.back());
        descriptors.pop_back();
        MPI_File file = MPI_FILE_NULL;
        if (MPI_File_open(MPI_COMM_SELF, path("letters").c_str(), MPI_MODE_RDONLY, MPI_INFO_NULL,
                          &file))
            continue;
        std::vector<int> read(n, -1);
        MPI_Status status;
        const int code = MPI_File_read_at(file, 0, read.data(), n, MPI_INT, &status);
        EXPECT(code != MPI_SUCCESS || (count_of(status) == n && read == expected));
        MPI_File_close(&file);
    }
    for (const int fd : descriptors) close(fd);
}

// Checkpoints of 8 MiB in turn; each is deleted when the next one is written.
void rotating_checkpoints(bool by_mpi) {
    const int rows = 8 / size;
    for (int round = 0; round < 16 && failure.empty(); ++round) {
        MPI_File file = open_file(numbered_name("step", round).c_str());
        for (int row = 0; row < rows; ++row) write_block(file, round, row);
        close_file(file);
        EXPECT(file_holds(numbered_name("step", round).c_str(), round, rows - 1));
        on_first_rank([&] {
            const std::string older = path(numbered_name("step", round - 1).c_str());
            if (round > 0 && by_mpi)
                EXPECT(MPI_File_delete(older.c_str(), MPI_INFO_NULL) == MPI_SUCCESS);
            else if (round > 0) EXPECT(unlink(older.c_str()) == 0);
        });
        int bad = !failure.empty(), any = 0;
        MPI_Allreduce(&bad, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (any && failure.empty()) failure = "another rank failed";
    }
}

void checkpoints_deleted() { rotating_checkpoints(true); }
void checkpoints_unlinked() { rotating_checkpoints(false); }

// Each file has a shared pointer of its own.
void shared_pointers() {
    constexpr int count = 520;
    std::vector<MPI_File> files(count);
    for (int k = 0; k < count; ++k)
        files[static_cast<std::size_t>(k)] = open_file(numbered_name("shared", k).c_str());
    for (int round = 0; round < 2; ++round)
        for (int k = 0; k < count; ++k)
            EXPECT(MPI_File_write_shared(files[static_cast<std::size_t>(k)], &k, 1, MPI_INT,
                                         MPI_STATUS_IGNORE) == MPI_SUCCESS);
    barrier();
    for (const auto file : files) {
        MPI_Offset position = -1;
        MPI_File_get_position_shared(file, &position);
        EXPECT(position == MPI_Offset{8} * size);
    }
    barrier();
    for (auto& file : files) close_file(file);
    for (int k = 0; k < count && failure.empty(); ++k) {
        const std::string name = numbered_name("shared", k);
        if (read_back(name.c_str()) != std::vector<int>(static_cast<std::size_t>(2 * size), k))
            failure = name + " has " + std::to_string(read_back(name.c_str()).size()) + " ints";
    }
}

// MPI_File_preallocate allocates the blocks, so that later writes cannot fail for lack of space.
void preallocated() {
    constexpr MPI_Offset bytes = 16 << 20;
    MPI_File file = open_file("preallocated");
    EXPECT(MPI_File_preallocate(file, bytes) == MPI_SUCCESS);
    struct stat info{};
    EXPECT(stat(path("preallocated").c_str(), &info) == 0);
    EXPECT(info.st_size == bytes && info.st_blocks * 512 >= bytes);
    barrier();
    close_file(file);
    EXPECT(stat(path("preallocated").c_str(), &info) == 0 && info.st_blocks * 512 >= bytes);
}

// Preallocates 1 GiB on a smaller file system.
void preallocated_too_much() {
    MPI_File file = open_file("too-much");
    print_code("preallocate", MPI_File_preallocate(file, MPI_Offset{1} << 30));
    MPI_File_close(&file);
}

}  // namespace

const std::vector<Case> many_file_cases = {{"files-300", files_300},
                                           {"files-512", files_512},
                                           {"files-in-turn", files_in_turn},
                                           {"last-descriptors", last_descriptors},
                                           {"checkpoints-deleted", checkpoints_deleted},
                                           {"checkpoints-unlinked", checkpoints_unlinked},
                                           {"shared-pointers", shared_pointers},
                                           {"preallocated", preallocated},
                                           {"preallocated-too-much", preallocated_too_much}};
