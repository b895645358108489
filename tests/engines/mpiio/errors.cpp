// Test cases on errors (errors.hpp).
#include "mpiio/errors.hpp"

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <cstring>

namespace {

constexpr MPI_Offset largest = INT64_MAX;
char any_bytes[64];

int calls_of_handler = 0;
void count_call(MPI_File*, int*, ...) { ++calls_of_handler; }

void set_counting_handler(MPI_File file) {
    MPI_Errhandler handler;
    MPI_File_create_errhandler(count_call, &handler);
    MPI_File_set_errhandler(file, handler);
    MPI_Errhandler_free(&handler);
}

// An error calls the handler once, and the next call is made with the same handler.
void count_calls() {
    MPI_File file = open_file("handler");
    set_counting_handler(file);
    for (int round = 0; round < 2; ++round) {
        calls_of_handler = 0;
        MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "nonsense", MPI_INFO_NULL);
        EXPECT(calls_of_handler == 1);
        MPI_File_write_at(file, -1, any_bytes, 1, MPI_INT, MPI_STATUS_IGNORE);
        EXPECT(calls_of_handler == 2);
        MPI_File_seek(file, -1, MPI_SEEK_SET);
        EXPECT(calls_of_handler == 3);
    }
    calls_of_handler = 0;
    EXPECT(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    EXPECT(MPI_File_write_at(file, rank, any_bytes, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    EXPECT(calls_of_handler == 0);
    MPI_File_close(&file);
}

// The same where the MPI library does the I/O: in atomic mode on several nodes. The file system
// refuses the write. Open MPI reports success then.
void count_calls_of_the_mpi() {
    MPI_File file = open_file("refused");
    EXPECT(MPI_File_set_atomicity(file, 1) == MPI_SUCCESS);
    set_counting_handler(file);
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{}, limit{};
    getrlimit(RLIMIT_FSIZE, &before);
    limit = {rlim_t{1} << 30, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int round = 0; round < 2; ++round) {
        calls_of_handler = 0;
        const int code = MPI_File_write_at(file, MPI_Offset{2} << 30, any_bytes, 64, MPI_BYTE,
                                           MPI_STATUS_IGNORE);
        EXPECT(calls_of_handler == (code != MPI_SUCCESS));
#ifndef OMPI_MAJOR_VERSION
        EXPECT(class_of(code) == MPI_ERR_IO);
#endif
        calls_of_handler = 0;
        EXPECT(class_of(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "nonsense", MPI_INFO_NULL)) ==
               MPI_ERR_UNSUPPORTED_DATAREP);
        EXPECT(calls_of_handler == 1);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(MPI_File_write_at(file, 64 * rank, any_bytes, 64, MPI_BYTE, MPI_STATUS_IGNORE) ==
           MPI_SUCCESS);
    MPI_File_close(&file);
}

#define EXPECT_REFUSED(call) EXPECT(class_of(call) == MPI_ERR_ARG)

// Transfers that reach beyond 2^63 - 1 fail, and the file pointers stay where they were.
void reach_beyond_the_largest_offset() {
    MPI_File file = open_file("largest");
    MPI_Status* const ignored = MPI_STATUS_IGNORE;
    if (rank == 0) MPI_File_write_at(file, 0, any_bytes, 64, MPI_BYTE, ignored);
    MPI_Offset position = -1;
    for (const MPI_Offset offset : {largest, largest - 4, largest - 7}) {
        EXPECT_REFUSED(MPI_File_write_at(file, offset, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT_REFUSED(MPI_File_read_at(file, offset, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT_REFUSED(MPI_File_write_at_all(file, offset, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT(MPI_File_seek(file, offset, MPI_SEEK_SET) == MPI_SUCCESS);
        EXPECT_REFUSED(MPI_File_write(file, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT_REFUSED(MPI_File_read(file, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT_REFUSED(MPI_File_seek(file, 8, MPI_SEEK_CUR));
        EXPECT_REFUSED(MPI_File_seek(file, offset, MPI_SEEK_END));
        MPI_File_get_position(file, &position);
        EXPECT(position == offset);
        EXPECT(MPI_File_seek_shared(file, offset, MPI_SEEK_SET) == MPI_SUCCESS);
        EXPECT_REFUSED(MPI_File_seek_shared(file, 8, MPI_SEEK_CUR));
        EXPECT_REFUSED(MPI_File_seek_shared(file, offset, MPI_SEEK_END));
        EXPECT_REFUSED(MPI_File_write_ordered(file, any_bytes, 8, MPI_BYTE, ignored));
        EXPECT_REFUSED(MPI_File_read_ordered(file, any_bytes, 8, MPI_BYTE, ignored));
        if (rank == 0) EXPECT_REFUSED(MPI_File_write_shared(file, any_bytes, 8, MPI_BYTE, ignored));
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_get_position_shared(file, &position);
        EXPECT(position == offset);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    // Offsets in ints, a displacement, and a file type of large extent.
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    for (const MPI_Offset offset : {largest, largest / 2, largest / 4})
        EXPECT_REFUSED(MPI_File_write_at(file, offset, any_bytes, 1, MPI_INT, ignored));
    EXPECT_REFUSED(MPI_File_get_byte_offset(file, largest / 2, &position));
    MPI_File_set_view(file, largest - 2, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    EXPECT_REFUSED(MPI_File_write_at(file, 0, any_bytes, 1, MPI_INT, ignored));
    EXPECT_REFUSED(MPI_File_read_at(file, 0, any_bytes, 1, MPI_INT, ignored));
    EXPECT_REFUSED(MPI_File_get_byte_offset(file, 1, &position));
    MPI_Datatype sparse, tib, huge;
    MPI_Type_create_resized(MPI_INT, 0, MPI_Aint{1} << 40, &sparse);
    MPI_Type_commit(&sparse);
    MPI_File_set_view(file, 0, MPI_INT, sparse, "native", MPI_INFO_NULL);
    EXPECT_REFUSED(MPI_File_write_at(file, 1 << 23, any_bytes, 1, MPI_INT, ignored));
    EXPECT_REFUSED(MPI_File_write_at(file, (1 << 23) - 1, any_bytes, 2, MPI_INT, ignored));
    EXPECT_REFUSED(MPI_File_get_byte_offset(file, 1 << 23, &position));
    EXPECT(MPI_File_get_byte_offset(file, 3, &position) == MPI_SUCCESS && position == MPI_Offset{3}
                                                                                          << 40);
    const int refused = MPI_File_set_view(file, -8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    EXPECT_REFUSED(refused);
#ifdef MPICH_VERSION  // its message says what is wrong
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(refused, text, &length);
    EXPECT(std::strstr(text, "displacement") != nullptr);
#endif
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    // 2^63 bytes.
    MPI_Type_contiguous(1 << 30, MPI_INT, &tib);
    MPI_Type_contiguous(1 << 30, tib, &huge);
    MPI_Type_commit(&huge);
    EXPECT_REFUSED(MPI_File_write_at(file, 0, any_bytes, 2, huge, ignored));
    EXPECT_REFUSED(MPI_File_read_at(file, 0, any_bytes, 2, huge, ignored));
    MPI_Type_free(&sparse);
    MPI_Type_free(&tib);
    MPI_Type_free(&huge);
    EXPECT_REFUSED(MPI_File_set_size(file, -1));
    EXPECT_REFUSED(MPI_File_preallocate(file, -1));
    MPI_File_get_size(file, &position);
    EXPECT(position == 64);
    MPI_File_close(&file);
    EXPECT(read_back("largest") == std::vector<int>(16, 0));
}

}  // namespace

const Case error_handler = {"error-handler", count_calls};
const Case errors_of_the_mpi = {"errors-of-the-mpi", count_calls_of_the_mpi};
const Case largest_offsets = {"largest-offsets", reach_beyond_the_largest_offset};
