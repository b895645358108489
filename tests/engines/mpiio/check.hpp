// Common parts of the MPI-IO test programs (mpiio, durability): rank and size, the folder of the
// files, EXPECT, which records the first failure of a case, and helpers for files of ints.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

inline int rank, size;
inline std::string folder;   // of the test files
inline std::string failure;  // the first failure of the case; empty: none

// A test case: its name on the command line, and its function.
struct Case {
    const char* name;
    void (*run)();
};

#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition) && failure.empty())                                 \
            failure = #condition " (line " + std::to_string(__LINE__) + ")"; \
    } while (0)

constexpr int read_write_create = MPI_MODE_RDWR | MPI_MODE_CREATE;

inline std::string path(const char* name) { return folder + "/" + name; }

inline MPI_File open_file(const char* name, int mode = read_write_create,
                          MPI_Comm comm = MPI_COMM_WORLD, MPI_Info info = MPI_INFO_NULL) {
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(comm, path(name).c_str(), mode, info, &file) == MPI_SUCCESS);
    return file;
}

// The class of an error code.
inline int class_of(int code) {
    int result = MPI_SUCCESS;
    if (code) MPI_Error_class(code, &result);
    return result;
}

// The number of elements that a transfer has moved.
inline int count_of(MPI_Status& status, MPI_Datatype type = MPI_INT) {
    int count = -1;
    MPI_Get_count(&status, type, &count);
    return count;
}

inline std::vector<int> consecutive(int n, int first) {
    std::vector<int> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), first);
    return values;
}

// Makes the writes of all ranks visible to all, as MPI requires: sync, barrier, sync.
inline void sync_all(MPI_File file) {
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
}

// The contents of a file as another program reads it, without MPI. One read() is used, because
// reading byte by byte would take most of a test's time on an emulated processor.
inline std::vector<int> read_back(const char* name, int first, int n) {
    std::ifstream in(path(name), std::ios::binary);
    std::vector<int> values(static_cast<std::size_t>(n));
    const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(int));
    in.seekg(std::streamoff{first} * std::streamoff{sizeof(int)});
    in.read(reinterpret_cast<char*>(values.data()), bytes);
    values.resize(static_cast<std::size_t>(in.gcount()) / sizeof(int));
    return values;
}

inline std::vector<int> read_back(const char* name) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path(name), error);
    return error ? std::vector<int>{} : read_back(name, 0, static_cast<int>(bytes / sizeof(int)));
}
