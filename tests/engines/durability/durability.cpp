// An MPI program that tests that acknowledged data are never lost. Its cases use files that are
// renamed, removed, changed by other programs or opened in large numbers, and file systems that
// fail.
//
// The same program runs with the MPI's own I/O and with the accelerator. Every case checks its own
// data and prints "ok NAME" or "bad NAME: reason". Cases on faults also print the error class of
// their calls ("code STEP RANK CLASS"), which the test that plants the fault checks.
//
//   durability FOLDER NAME
#include "durability/durability.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

std::vector<int> block_of(int version, int of_rank) {
    std::vector<int> values(block);
    for (int k = 0; k < block; ++k)
        values[static_cast<std::size_t>(k)] = (version * 8 + of_rank + 1) * block + k;
    return values;
}

void write_block(MPI_File file, int version, int row) {
    const auto own_values = block_of(version, rank);
    EXPECT(MPI_File_write_at(file, MPI_Offset{row * size + rank} * block * 4, own_values.data(),
                             block, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

bool file_holds(const char* name, int version, int row) {
    const auto content = read_back(name);
    const auto begin = static_cast<std::size_t>(row * size) * block;
    if (content.size() < begin + static_cast<std::size_t>(size) * block) return false;
    for (int other = 0; other < size; ++other) {
        const auto expected = block_of(version, other);
        if (!std::equal(expected.begin(), expected.end(),
                        content.begin() + static_cast<std::ptrdiff_t>(begin) + other * block))
            return false;
    }
    return true;
}

bool rank_reads(MPI_File file, int version, int row) {
    std::vector<int> values(block);
    MPI_Status status;
    return MPI_File_read_at(file, MPI_Offset{row * size + rank} * block * 4, values.data(), block,
                            MPI_INT, &status) == MPI_SUCCESS &&
           count_of(status) == block && values == block_of(version, rank);
}

void set_fault(bool active) {
    on_first_rank([=] {
        const char* condition = std::getenv("FAULTY_FS_WHILE");
        EXPECT(condition != nullptr);
        if (!condition) return;
        if (active) close(open(condition, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        else unlink(condition);
    });
}

void close_file(MPI_File& file) { EXPECT(MPI_File_close(&file) == MPI_SUCCESS); }

void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

void overwrite(const char* name, const std::vector<int>& values) {
    const int fd = open(path(name).c_str(), O_WRONLY | O_CLOEXEC);
    const auto bytes = static_cast<ssize_t>(values.size() * sizeof(int));
    EXPECT(fd >= 0 && pwrite(fd, values.data(), values.size() * sizeof(int), 0) == bytes);
    close(fd);
}

void print_code(const char* step, int code) {
    int error_class = MPI_SUCCESS;
    if (code) MPI_Error_class(code, &error_class);
    const char* name = "other";
    switch (error_class) {
        case MPI_SUCCESS: name = "success"; break;
        case MPI_ERR_IO: name = "io"; break;
        case MPI_ERR_NO_SPACE: name = "no-space"; break;
        case MPI_ERR_QUOTA: name = "quota"; break;
        case MPI_ERR_READ_ONLY: name = "read-only"; break;
        case MPI_ERR_NO_SUCH_FILE: name = "no-such-file"; break;
        default: break;
    }
    std::printf("code %s %d %s\n", step, rank, name);
    std::fflush(stdout);
}

void log_mark(const char* text) {
    const char* log = std::getenv("FAULTY_FS_LOG");
    if (!log) return;
    const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const std::string line = std::to_string(getpid()) + " mark 0 -1 0 " + text + "\n";
    EXPECT(write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
    close(fd);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: durability FOLDER NAME\n");
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    folder = argv[1];
    bool is_known_case = false;
    for (const auto* cases : {&name_cases, &many_file_cases, &outside_cases, &alone_cases,
                              &fault_cases, &healed_cases, &later_job_cases, &handle_cases})
        for (const auto& test_case : *cases) {
            if (std::string(argv[2]) != test_case.name) continue;
            is_known_case = true;
            test_case.run();
            int bad = failure.empty() ? size : rank, first = 0;
            MPI_Allreduce(&bad, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
            if (rank == first)
                std::printf("bad %s: rank %d: %s\n", test_case.name, rank, failure.c_str());
            if (rank == 0 && first == size) std::printf("ok %s\n", test_case.name);
            std::fflush(stdout);
        }
    if (!is_known_case && rank == 0) std::fprintf(stderr, "durability: no case %s\n", argv[2]);
    MPI_Finalize();
    return is_known_case ? 0 : 2;
}
