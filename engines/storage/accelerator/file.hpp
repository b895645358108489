// An open file: its view, its pointers, and the way of bytes between the program's buffers and the
// stores.
//
// Behind every handle is a file that the MPI itself has opened, on MPI_COMM_SELF: calls that are of
// no concern here, error handlers and Fortran's numbers go on working with it. What this library
// cannot do better (an atomic mode across nodes, foreign data representations) is done through it,
// once all that is in the stores is in the file (`bypass`).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/accelerator/flat.hpp"
#include "storage/accelerator/job.hpp"
#include "storage/accelerator/mpi.hpp"
#include "storage/accelerator/remote.hpp"

namespace assay::storage {

// Where a transfer begins.
enum class Pointer { given, own, shared, ordered };
struct At {
    Pointer pointer = Pointer::own;
    MPI_Offset offset = 0;  // in etypes, if given
    bool collective = false;
};

class File {
public:
    static int open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* handle);
    // The file behind a handle; null: the MPI's own business.
    static File* of(MPI_File handle);
    static int close(MPI_File* handle);
    // What is in the stores of a file that could be removed is to be written nowhere.
    static int remove(const char* name, MPI_Info info);
    ~File();

    int write(At at, const void* buffer, MPI_Count count, MPI_Datatype type, MPI_Count* moved);
    int read(At at, void* buffer, MPI_Count count, MPI_Datatype type, MPI_Count* moved);

    int sync();
    int set_size(MPI_Offset size);
    int preallocate(MPI_Offset size);
    int get_size(MPI_Offset* size);
    int set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                 const char* representation, MPI_Info info);
    int set_atomicity(int on);
    int get_atomicity(int* on);
    int seek(MPI_Offset offset, int whence);
    int seek_shared(MPI_Offset offset, int whence);
    int get_position(MPI_Offset* offset);
    int get_position_shared(MPI_Offset* offset);
    int get_byte_offset(MPI_Offset offset, MPI_Offset* displacement) const;
    int mode() const { return mode_; }
    MPI_Comm comm() const { return comm_; }
    // Calls the error handler that the program has set for the file.
    int raise(int code);

    struct Pending {
        MPI_Status status{};
        bool active = false;
    } split;

private:
    class Alone;
    File() = default;
    int claim(int mode);
    void arrive();
    int refuse(At at, MPI_Count count, bool writing) const;
    int place(At at, std::int64_t bytes, std::int64_t& logical);
    int write_own(At at, const void* buffer, MPI_Count count, MPI_Datatype type, MPI_Count* moved);
    int store_bytes(std::int64_t logical, const char* buffer, const Flat& memory,
                    std::int64_t bytes);
    int load_bytes(std::int64_t logical, char* buffer, const Flat& memory, std::int64_t bytes,
                   MPI_Count& got);
    void load_range(std::uint64_t begin, std::uint64_t end, char* to, std::vector<Wanted>& remote);
    void read_file(std::uint64_t begin, std::uint64_t end, char* to) const;
    bool settle(std::vector<Wanted>& remote);
    void grow(std::uint64_t end);
    std::uint64_t size_now(std::uint64_t at_least);
    void exchange();
    int complete();
    bool contested();
    bool look();
    int into_bypass();
    int pointer(std::int64_t amount, bool set, std::uint64_t& before);
    void meet(At at);
    void visible(bool collective);

    Job* job_ = nullptr;
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    std::vector<int> world_ranks_;  // of the communicator's ranks
    bool one_node_ = true;
    MPI_File anchor_ = MPI_FILE_NULL;
    int fd_ = -1;
    int locks_ = -1;  // the file again, for the file system's locks
    int mode_ = 0;
    bool atomic_ = false, bypass_ = false;
    std::string path_;
    std::uint32_t slot_ = 0;
    std::uint64_t file_size_ = 0;  // of the file system's file, as last seen
    std::int64_t displacement_ = 0, etype_ = 1;
    std::shared_ptr<const Flat> view_;
    std::atomic<std::int64_t> position_{0};  // individual pointer, in etypes
    std::uint32_t pointer_slot_ = 0;
    int pointer_home_ = 0;  // world rank whose node keeps the shared pointer
};

}  // namespace assay::storage
