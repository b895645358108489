// The Fortran bindings that do not call the C functions which this library intercepts, so they are
// intercepted too. Parameters: f: file; o: offset; b: buffer; n: count; t: datatype; s: status;
// r: request; e: error.
//
// Open MPI's bindings call the PMPI functions, so the bindings themselves are intercepted here, for
// mpif.h and the module mpi (mpi_..._) and for mpi_f08 (ompi_..._f), and call the C functions.
// MPICH's bindings call the C functions, except those of mpi_f08 that have no buffer.
#include <string>

#include "storage/accelerator/comm_epoch.hpp"
#include "storage/accelerator/mpi.hpp"

extern "C" {
int MPI_Init(int*, char***);
int MPI_Init_thread(int*, char***, int, int*);
}

namespace {

// Removes the blanks that Fortran pads with.
std::string trimmed(const char* characters, std::size_t length) {
    const std::string padded(characters, length);
    const auto last = padded.find_last_not_of(' ');
    const auto first = padded.find_first_not_of(' ');
    return last == std::string::npos ? "" : padded.substr(first, last - first + 1);
}

// The error is optional in mpi_f08.
void set_error(MPI_Fint* error, int code) {
    if (error) *error = code;
}

}  // namespace

#define FILE_OF(f) PMPI_File_f2c(*(f))

#ifdef OMPI_MAJOR_VERSION

// The addresses of Fortran's MPI_STATUS_IGNORE and MPI_BOTTOM.
extern "C" {
extern MPI_Fint mpi_fortran_status_ignore_[] __attribute__((weak));
extern MPI_Fint mpi_fortran_bottom_ __attribute__((weak));
}

namespace {

void* address(void* buffer) { return buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer; }

template <class Call>
void with_status(MPI_Fint* status, MPI_Fint* error, Call call) {
    MPI_Status result;
    *error = call(&result);
    if (status != mpi_fortran_status_ignore_) PMPI_Status_c2f(&result, status);
}

template <class Call>
void with_request(MPI_Fint* request, MPI_Fint* error, Call call) {
    MPI_Request result;
    *error = call(&result);
    if (!*error) *request = PMPI_Request_c2f(result);
}

}  // namespace

#define TYPE_OF(t) PMPI_Type_f2c(*(t))
// Defines a binding under its two names; the length of a string is its last argument.
#define BINDING(name, ...)                                                                   \
    ASSAY_EXPORT void ompi_##name##_f(__VA_ARGS__);                                          \
    ASSAY_EXPORT void mpi_##name##_(__VA_ARGS__) __attribute__((alias("ompi_" #name "_f"))); \
    ASSAY_EXPORT void ompi_##name##_f(__VA_ARGS__)
using StringLength = int;

#define DATA_AT(name)                                                                   \
    BINDING(file_##name, MPI_Fint* f, MPI_Offset* o, char* b, MPI_Fint* n, MPI_Fint* t, \
            MPI_Fint* s, MPI_Fint* e) {                                                 \
        with_status(s, e, [&](MPI_Status* result) {                                     \
            return MPI_File_##name(FILE_OF(f), *o, address(b), *n, TYPE_OF(t), result); \
        });                                                                             \
    }
#define DATA(name)                                                                    \
    BINDING(file_##name, MPI_Fint* f, char* b, MPI_Fint* n, MPI_Fint* t, MPI_Fint* s, \
            MPI_Fint* e) {                                                            \
        with_status(s, e, [&](MPI_Status* result) {                                   \
            return MPI_File_##name(FILE_OF(f), address(b), *n, TYPE_OF(t), result);   \
        });                                                                           \
    }
#define START_AT(name)                                                                  \
    BINDING(file_##name, MPI_Fint* f, MPI_Offset* o, char* b, MPI_Fint* n, MPI_Fint* t, \
            MPI_Fint* r, MPI_Fint* e) {                                                 \
        with_request(r, e, [&](MPI_Request* result) {                                   \
            return MPI_File_##name(FILE_OF(f), *o, address(b), *n, TYPE_OF(t), result); \
        });                                                                             \
    }
#define START(name)                                                                   \
    BINDING(file_##name, MPI_Fint* f, char* b, MPI_Fint* n, MPI_Fint* t, MPI_Fint* r, \
            MPI_Fint* e) {                                                            \
        with_request(r, e, [&](MPI_Request* result) {                                 \
            return MPI_File_##name(FILE_OF(f), address(b), *n, TYPE_OF(t), result);   \
        });                                                                           \
    }
#define SPLIT(name)                                                                             \
    BINDING(file_##name##_begin, MPI_Fint* f, char* b, MPI_Fint* n, MPI_Fint* t, MPI_Fint* e) { \
        *e = MPI_File_##name##_begin(FILE_OF(f), address(b), *n, TYPE_OF(t));                   \
    }                                                                                           \
    SPLIT_END(name)
#define SPLIT_AT(name)                                                                          \
    BINDING(file_##name##_begin, MPI_Fint* f, MPI_Offset* o, char* b, MPI_Fint* n, MPI_Fint* t, \
            MPI_Fint* e) {                                                                      \
        *e = MPI_File_##name##_begin(FILE_OF(f), *o, address(b), *n, TYPE_OF(t));               \
    }                                                                                           \
    SPLIT_END(name)
#define SPLIT_END(name)                                                          \
    BINDING(file_##name##_end, MPI_Fint* f, char* b, MPI_Fint* s, MPI_Fint* e) { \
        with_status(s, e, [&](MPI_Status* result) {                              \
            return MPI_File_##name##_end(FILE_OF(f), address(b), result);        \
        });                                                                      \
    }

DATA_AT(write_at)
DATA_AT(write_at_all)
DATA_AT(read_at)
DATA_AT(read_at_all)
DATA(write)
DATA(write_all)
DATA(write_shared)
DATA(write_ordered)
DATA(read)
DATA(read_all)
DATA(read_shared)
DATA(read_ordered)
START_AT(iwrite_at)
START_AT(iwrite_at_all)
START_AT(iread_at)
START_AT(iread_at_all)
START(iwrite)
START(iwrite_all)
START(iwrite_shared)
START(iread)
START(iread_all)
START(iread_shared)
SPLIT_AT(write_at_all)
SPLIT_AT(read_at_all)
SPLIT(write_all)
SPLIT(read_all)
SPLIT(write_ordered)
SPLIT(read_ordered)

#else  // MPICH

// Defines a binding; the length of a string is its last argument.
#define BINDING(name, ...) ASSAY_EXPORT void mpi_##name##_f08_(__VA_ARGS__)
using StringLength = std::size_t;

BINDING(finalize, MPI_Fint* e) { set_error(e, MPI_Finalize()); }

#endif

BINDING(file_open, MPI_Fint* comm, char* name, MPI_Fint* mode, MPI_Fint* info, MPI_Fint* f,
        MPI_Fint* e, StringLength length) {
    MPI_File result;
    const int code = MPI_File_open(PMPI_Comm_f2c(*comm), trimmed(name, length).c_str(), *mode,
                                   PMPI_Info_f2c(*info), &result);
    if (!code) *f = PMPI_File_c2f(result);
    set_error(e, code);
}
BINDING(file_close, MPI_Fint* f, MPI_Fint* e) {
    MPI_File result = FILE_OF(f);
    const int code = MPI_File_close(&result);
    if (!code) *f = PMPI_File_c2f(result);
    set_error(e, code);
}
BINDING(file_delete, char* name, MPI_Fint* info, MPI_Fint* e, StringLength length) {
    set_error(e, MPI_File_delete(trimmed(name, length).c_str(), PMPI_Info_f2c(*info)));
}
BINDING(file_sync, MPI_Fint* f, MPI_Fint* e) { set_error(e, MPI_File_sync(FILE_OF(f))); }
BINDING(file_get_size, MPI_Fint* f, MPI_Offset* size, MPI_Fint* e) {
    set_error(e, MPI_File_get_size(FILE_OF(f), size));
}
BINDING(file_set_size, MPI_Fint* f, MPI_Offset* size, MPI_Fint* e) {
    set_error(e, MPI_File_set_size(FILE_OF(f), *size));
}
BINDING(file_preallocate, MPI_Fint* f, MPI_Offset* size, MPI_Fint* e) {
    set_error(e, MPI_File_preallocate(FILE_OF(f), *size));
}
BINDING(file_get_amode, MPI_Fint* f, MPI_Fint* mode, MPI_Fint* e) {
    set_error(e, MPI_File_get_amode(FILE_OF(f), mode));
}
BINDING(file_get_info, MPI_Fint* f, MPI_Fint* info, MPI_Fint* e) {
    MPI_Info result;
    const int code = MPI_File_get_info(FILE_OF(f), &result);
    if (!code) *info = PMPI_Info_c2f(result);
    set_error(e, code);
}
BINDING(file_get_group, MPI_Fint* f, MPI_Fint* group, MPI_Fint* e) {
    MPI_Group result;
    const int code = MPI_File_get_group(FILE_OF(f), &result);
    if (!code) *group = PMPI_Group_c2f(result);
    set_error(e, code);
}
BINDING(file_set_view, MPI_Fint* f, MPI_Offset* displacement, MPI_Fint* etype, MPI_Fint* filetype,
        char* representation, MPI_Fint* info, MPI_Fint* e, StringLength length) {
    set_error(e, MPI_File_set_view(FILE_OF(f), *displacement, PMPI_Type_f2c(*etype),
                                   PMPI_Type_f2c(*filetype),
                                   trimmed(representation, length).c_str(), PMPI_Info_f2c(*info)));
}
BINDING(file_set_atomicity, MPI_Fint* f, MPI_Fint* on, MPI_Fint* e) {
    set_error(e, MPI_File_set_atomicity(FILE_OF(f), *on != 0));
}
BINDING(file_get_atomicity, MPI_Fint* f, MPI_Fint* on, MPI_Fint* e) {
    set_error(e, MPI_File_get_atomicity(FILE_OF(f), on));
}
BINDING(file_seek, MPI_Fint* f, MPI_Offset* offset, MPI_Fint* whence, MPI_Fint* e) {
    set_error(e, MPI_File_seek(FILE_OF(f), *offset, *whence));
}
BINDING(file_seek_shared, MPI_Fint* f, MPI_Offset* offset, MPI_Fint* whence, MPI_Fint* e) {
    set_error(e, MPI_File_seek_shared(FILE_OF(f), *offset, *whence));
}
BINDING(file_get_position, MPI_Fint* f, MPI_Offset* offset, MPI_Fint* e) {
    set_error(e, MPI_File_get_position(FILE_OF(f), offset));
}
BINDING(file_get_position_shared, MPI_Fint* f, MPI_Offset* offset, MPI_Fint* e) {
    set_error(e, MPI_File_get_position_shared(FILE_OF(f), offset));
}
BINDING(file_get_byte_offset, MPI_Fint* f, MPI_Offset* offset, MPI_Offset* displacement,
        MPI_Fint* e) {
    set_error(e, MPI_File_get_byte_offset(FILE_OF(f), *offset, displacement));
}

// The communication calls of Fortran programs are not intercepted, so communication is assumed at
// any time (comm_epoch.hpp).
BINDING(init, MPI_Fint* e) {
    assay::storage::assume_communication();
    set_error(e, MPI_Init(nullptr, nullptr));
}
BINDING(init_thread, MPI_Fint* required, MPI_Fint* provided, MPI_Fint* e) {
    assay::storage::assume_communication();
    set_error(e, MPI_Init_thread(nullptr, nullptr, *required, provided));
}
