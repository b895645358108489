// A table of MPI-IO's calls, and of the modes that forbid each (MPI 4.0, 14.2 to 14.4). Where the
// standard names no error class, it is that of ROMIO. If a mode allows a call, it must succeed.
#include "mpiio/modes.hpp"

#include <unistd.h>

#include <functional>

namespace {

constexpr int bytes = 8;

// What a call needs. `positions`: it uses positions that a sequential file does not have.
struct Call {
    const char* name;
    bool writes, reads, positions;
    std::function<int(MPI_File)> run;
};

char buffer[bytes];
MPI_Offset offset;

// Calls the function with the buffer's arguments and a status.
template <class Function, class... Start>
std::function<int(MPI_File)> transfer(Function function, Start... start) {
    return [=](MPI_File file) {
        return function(file, start..., buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    };
}

// Begins the transfer and waits for it.
template <class Function, class... Start>
std::function<int(MPI_File)> nonblocking(Function function, Start... start) {
    return [=](MPI_File file) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = function(file, start..., buffer, bytes, MPI_BYTE, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    };
}

template <class Begin, class End, class... Start>
std::function<int(MPI_File)> split(Begin begin, End end, Start... start) {
    return [=](MPI_File file) {
        const int code = begin(file, start..., buffer, bytes, MPI_BYTE);
        return code ? code : end(file, buffer, MPI_STATUS_IGNORE);
    };
}

const MPI_Offset begin = 0;

const std::vector<Call> calls = {
    {"write_at", true, false, true, transfer(MPI_File_write_at, begin)},
    {"write_at_all", true, false, true, transfer(MPI_File_write_at_all, begin)},
    {"iwrite_at", true, false, true, nonblocking(MPI_File_iwrite_at, begin)},
    {"iwrite_at_all", true, false, true, nonblocking(MPI_File_iwrite_at_all, begin)},
    {"write_at_all_begin", true, false, true,
     split(MPI_File_write_at_all_begin, MPI_File_write_at_all_end, begin)},
    {"write", true, false, true, transfer(MPI_File_write)},
    {"write_all", true, false, true, transfer(MPI_File_write_all)},
    {"iwrite", true, false, true, nonblocking(MPI_File_iwrite)},
    {"iwrite_all", true, false, true, nonblocking(MPI_File_iwrite_all)},
    {"write_all_begin", true, false, true, split(MPI_File_write_all_begin, MPI_File_write_all_end)},
    {"write_shared", true, false, false, transfer(MPI_File_write_shared)},
    {"iwrite_shared", true, false, false, nonblocking(MPI_File_iwrite_shared)},
    {"write_ordered", true, false, false, transfer(MPI_File_write_ordered)},
    {"write_ordered_begin", true, false, false,
     split(MPI_File_write_ordered_begin, MPI_File_write_ordered_end)},
    {"read_at", false, true, true, transfer(MPI_File_read_at, begin)},
    {"read_at_all", false, true, true, transfer(MPI_File_read_at_all, begin)},
    {"iread_at", false, true, true, nonblocking(MPI_File_iread_at, begin)},
    {"iread_at_all", false, true, true, nonblocking(MPI_File_iread_at_all, begin)},
    {"read_at_all_begin", false, true, true,
     split(MPI_File_read_at_all_begin, MPI_File_read_at_all_end, begin)},
    {"read", false, true, true, transfer(MPI_File_read)},
    {"read_all", false, true, true, transfer(MPI_File_read_all)},
    {"iread", false, true, true, nonblocking(MPI_File_iread)},
    {"iread_all", false, true, true, nonblocking(MPI_File_iread_all)},
    {"read_all_begin", false, true, true, split(MPI_File_read_all_begin, MPI_File_read_all_end)},
    {"read_shared", false, true, false, transfer(MPI_File_read_shared)},
    {"iread_shared", false, true, false, nonblocking(MPI_File_iread_shared)},
    {"read_ordered", false, true, false, transfer(MPI_File_read_ordered)},
    {"read_ordered_begin", false, true, false,
     split(MPI_File_read_ordered_begin, MPI_File_read_ordered_end)},
    {"seek", false, false, true,
     [](MPI_File file) { return MPI_File_seek(file, 0, MPI_SEEK_SET); }},
    {"seek_shared", false, false, true,
     [](MPI_File file) { return MPI_File_seek_shared(file, 0, MPI_SEEK_SET); }},
    {"get_position", false, false, true,
     [](MPI_File file) { return MPI_File_get_position(file, &offset); }},
    {"get_position_shared", false, false, true,
     [](MPI_File file) { return MPI_File_get_position_shared(file, &offset); }},
    {"get_byte_offset", false, false, false,
     [](MPI_File file) { return MPI_File_get_byte_offset(file, 0, &offset); }},
    {"set_size", true, false, true, [](MPI_File file) { return MPI_File_set_size(file, 4096); }},
    {"preallocate", true, false, true,
     [](MPI_File file) { return MPI_File_preallocate(file, 4096); }},
    {"get_size", false, false, false,
     [](MPI_File file) { return MPI_File_get_size(file, &offset); }},
    {"sync", true, false, false, MPI_File_sync},
};

// The class with which the call must fail in this mode; of two that apply either may be told.
bool is_right(const Call& call, int mode, int error_class) {
    const bool is_write_refused = call.writes && mode & MPI_MODE_RDONLY,
               is_read_refused = call.reads && mode & MPI_MODE_WRONLY,
               is_position_refused = call.positions && mode & MPI_MODE_SEQUENTIAL;
    if (error_class == MPI_ERR_READ_ONLY) return is_write_refused;
    if (error_class == MPI_ERR_ACCESS) return is_read_refused;
    if (error_class == MPI_ERR_UNSUPPORTED_OPERATION) return is_position_refused;
    return error_class == MPI_SUCCESS && !is_write_refused && !is_read_refused &&
           !is_position_refused;
}

void check(const std::string& name, int mode, bool is_correct, int error_class) {
    if (!is_correct && failure.empty())
        failure =
            name + " in mode " + std::to_string(mode) + ": class " + std::to_string(error_class);
}

// Views of sequential files begin at the shared file pointer, those of other files do not.
void check_view(MPI_File file, int mode, MPI_Offset displacement) {
    const int error_class = class_of(
        MPI_File_set_view(file, displacement, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    const bool is_refused =
        (displacement == MPI_DISPLACEMENT_CURRENT) != ((mode & MPI_MODE_SEQUENTIAL) != 0);
    check("set_view", mode, error_class == (is_refused ? MPI_ERR_ARG : MPI_SUCCESS), error_class);
}

void run_all() {
    for (const int mode :
         {MPI_MODE_RDONLY, MPI_MODE_WRONLY, MPI_MODE_RDWR, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL,
          MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL}) {
        MPI_File file = open_file("forbidden");
        EXPECT(MPI_File_set_size(file, 4096) == MPI_SUCCESS);
        MPI_File_close(&file);
        file = open_file("forbidden", mode);
        for (const Call& call : calls) {
            const int error_class = class_of(call.run(file));
            check(call.name, mode, is_right(call, mode, error_class), error_class);
        }
        for (const MPI_Offset displacement : {MPI_Offset{0}, MPI_Offset{MPI_DISPLACEMENT_CURRENT}})
            check_view(file, mode, displacement);
        MPI_File_close(&file);
    }
    MPI_File file = MPI_FILE_NULL;
    const int code = MPI_File_open(MPI_COMM_WORLD, path("forbidden").c_str(),
                                   MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file);
    EXPECT(class_of(code) == MPI_ERR_AMODE);
}

// A file that does not exist is created once, for all ranks, by whatever name it gets.
void create_files() {
    if (rank == 0) EXPECT(symlink("target", path("link").c_str()) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<std::string> names = {path("plain"), path("link")};
#ifndef OMPI_MAJOR_VERSION  // OMPIO takes no prefix
    names.push_back("ufs:" + path("prefixed"));
#endif
    for (const std::string& name : names)
        for (int round = 0; round < 2; ++round) {
            MPI_File file;
            EXPECT(MPI_File_open(MPI_COMM_WORLD, name.c_str(), read_write_create, MPI_INFO_NULL,
                                 &file) == MPI_SUCCESS);
            const int value = round + rank;
            EXPECT(MPI_File_write_at(file, 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS);
            MPI_File_close(&file);
        }
    EXPECT(read_back("plain") == consecutive(size, 1));
    EXPECT(read_back("target") == consecutive(size, 1));
    if (names.size() > 2) EXPECT(read_back("prefixed") == consecutive(size, 1));
    MPI_Barrier(MPI_COMM_WORLD);
    const auto is_refused = [](const std::string& name, int mode) {
        MPI_File file;
        return MPI_File_open(MPI_COMM_WORLD, name.c_str(), mode, MPI_INFO_NULL, &file) !=
               MPI_SUCCESS;
    };
    EXPECT(is_refused(path("absent/file"), read_write_create));
    EXPECT(is_refused(path("plain"), read_write_create | MPI_MODE_EXCL));
    EXPECT(is_refused(path("link"), read_write_create | MPI_MODE_EXCL));
    EXPECT(is_refused(path("unmade"), MPI_MODE_RDONLY | MPI_MODE_CREATE));
    EXPECT(access(path("unmade").c_str(), F_OK) != 0);
}

}  // namespace

const Case forbidden_calls = {"forbidden-calls", run_all};
const Case new_files = {"new-files", create_files};
