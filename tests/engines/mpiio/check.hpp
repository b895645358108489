// What the cases share: rank and size, the folder of the files, and EXPECT, which records the first
// failure.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

inline int rank, size;
inline std::string folder, failure;  // failure: the first of the case

struct Case {
    const char* name;
    void (*run)();
};

#define EXPECT(condition)                                                    \
    do {                                                                     \
        if (!(condition) && failure.empty())                                 \
            failure = #condition " (line " + std::to_string(__LINE__) + ")"; \
    } while (0)

constexpr int rdwr = MPI_MODE_RDWR | MPI_MODE_CREATE;

inline std::string path(const char* name) { return folder + "/" + name; }

inline MPI_File open_file(const char* name, int mode = rdwr, MPI_Comm comm = MPI_COMM_WORLD) {
    MPI_File file = MPI_FILE_NULL;
    EXPECT(MPI_File_open(comm, path(name).c_str(), mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

inline int count_of(MPI_Status& status, MPI_Datatype type = MPI_INT) {
    int count = -1;
    MPI_Get_count(&status, type, &count);
    return count;
}

inline std::vector<int> filled(int n, int first) {
    std::vector<int> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), first);
    return values;
}

inline void sync_all(MPI_File file) {
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
}

// The file as another program reads it, after it was closed. In one piece: byte by byte an emulated
// processor, and a file system of a guest, would take most of a test's time.
inline std::vector<int> read_back(const char* name) {
    std::ifstream in(path(name), std::ios::binary | std::ios::ate);
    if (!in) return {};
    std::vector<int> values(static_cast<std::size_t>(in.tellg()) / sizeof(int));
    const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(int));
    in.seekg(0);
    in.read(reinterpret_cast<char*>(values.data()), bytes);
    values.resize(static_cast<std::size_t>(in.gcount()) / sizeof(int));
    return values;
}
