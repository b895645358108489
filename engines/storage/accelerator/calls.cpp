// The MPI-IO functions that this library intercepts, with MPI_Init and MPI_Finalize. Each function
// checks whether the file is accelerated, and calls the MPI's own function (PMPI_...) if it is not.
//
// Functions that are not listed here (set_info, extents of types, conversions) go to the MPI
// library, which has opened the same file under the same handle (file.hpp).

#include "storage/accelerator/file.hpp"

using assay::storage::AcceleratedFile;
using assay::storage::Job;
using assay::storage::PositionKind;
using assay::storage::TransferStart;

namespace {

void set_status(MPI_Status* status, MPI_Count bytes) {
    if (status == MPI_STATUS_IGNORE) return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, bytes);
    PMPI_Status_set_cancelled(status, 0);
}

int write(AcceleratedFile* file, TransferStart start, const void* buffer, MPI_Count count,
          MPI_Datatype type, MPI_Status* status) {
    MPI_Count bytes_moved = 0;
    const int code = file->write(start, buffer, count, type, &bytes_moved);
    set_status(status, bytes_moved);
    return file->raise(code);
}

int read(AcceleratedFile* file, TransferStart start, void* buffer, MPI_Count count,
         MPI_Datatype type, MPI_Status* status) {
    MPI_Count bytes_moved = 0;
    const int code = file->read(start, buffer, count, type, &bytes_moved);
    set_status(status, bytes_moved);
    return file->raise(code);
}

// Nonblocking transfers are complete when the call returns: at memory's speed there is nothing to
// overlap. Their request is a generalized request, complete from the start, whose query function
// reports how many bytes were transferred.
int query_request(void* bytes, MPI_Status* status) {
    set_status(status, *static_cast<MPI_Count*>(bytes));
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
int free_request(void* bytes) {
    delete static_cast<MPI_Count*>(bytes);
    return MPI_SUCCESS;
}
int cancel_request(void*, int) { return MPI_SUCCESS; }

int completed_request(AcceleratedFile* file, int code, MPI_Count bytes_moved,
                      MPI_Request* request) {
    if (code) {
        *request = MPI_REQUEST_NULL;
        return file->raise(code);
    }
    PMPI_Grequest_start(query_request, free_request, cancel_request, new MPI_Count(bytes_moved),
                        request);
    return PMPI_Grequest_complete(*request);
}

int start_write(AcceleratedFile* file, TransferStart start, const void* buffer, MPI_Count count,
                MPI_Datatype type, MPI_Request* request) {
    MPI_Count bytes_moved = 0;
    const int code = file->write(start, buffer, count, type, &bytes_moved);
    return completed_request(file, code, bytes_moved, request);
}

int start_read(AcceleratedFile* file, TransferStart start, void* buffer, MPI_Count count,
               MPI_Datatype type, MPI_Request* request) {
    MPI_Count bytes_moved = 0;
    const int code = file->read(start, buffer, count, type, &bytes_moved);
    return completed_request(file, code, bytes_moved, request);
}

// Split collectives transfer in the begin call and return the status in the end call.
int begin_write(AcceleratedFile* file, TransferStart start, const void* buffer, MPI_Count count,
                MPI_Datatype type) {
    if (file->split.active) return file->raise(MPI_ERR_OTHER);
    const int code = write(file, start, buffer, count, type, &file->split.status);
    file->split.active = code == MPI_SUCCESS;
    return code;
}
int begin_read(AcceleratedFile* file, TransferStart start, void* buffer, MPI_Count count,
               MPI_Datatype type) {
    if (file->split.active) return file->raise(MPI_ERR_OTHER);
    const int code = read(file, start, buffer, count, type, &file->split.status);
    file->split.active = code == MPI_SUCCESS;
    return code;
}
int end_split(AcceleratedFile* file, MPI_Status* status) {
    if (!file->split.active) return file->raise(MPI_ERR_OTHER);
    file->split.active = false;
    if (status != MPI_STATUS_IGNORE) *status = file->split.status;
    return MPI_SUCCESS;
}

constexpr TransferStart from_offset(MPI_Offset offset, bool collective = false) {
    return {PositionKind::explicit_offset, offset, collective};
}
constexpr TransferStart from_individual_pointer(bool collective = false) {
    return {PositionKind::individual, 0, collective};
}
constexpr TransferStart from_shared_pointer{PositionKind::shared, 0, false};
constexpr TransferStart in_rank_order{PositionKind::ordered, 0, true};

}  // namespace

// Each macro defines the write and the read function of one kind of transfer. Its arguments: the
// end of the functions' names, the type of their count, and where the transfer begins. Parameters
// of the functions: f: file; o: offset; b: buffer; n: count; t: datatype; s: status; r: request.
//
// ACCELERATED_OR returns `accelerated` if the file is accelerated, else `passed_on`.
#define ACCELERATED_OR(passed_on, accelerated)                                \
    if (AcceleratedFile* file = AcceleratedFile::find(f)) return accelerated; \
    return passed_on
#define DATA_AT(name, Count, collective)                                                     \
    ASSAY_EXPORT int MPI_File_write_##name(MPI_File f, MPI_Offset o, const void* b, Count n, \
                                           MPI_Datatype t, MPI_Status* s) {                  \
        ACCELERATED_OR(PMPI_File_write_##name(f, o, b, n, t, s),                             \
                       write(file, from_offset(o, collective), b, n, t, s));                 \
    }                                                                                        \
    ASSAY_EXPORT int MPI_File_read_##name(MPI_File f, MPI_Offset o, void* b, Count n,        \
                                          MPI_Datatype t, MPI_Status* s) {                   \
        ACCELERATED_OR(PMPI_File_read_##name(f, o, b, n, t, s),                              \
                       read(file, from_offset(o, collective), b, n, t, s));                  \
    }
#define DATA(suffix, Count, start)                                                              \
    ASSAY_EXPORT int MPI_File_write##suffix(MPI_File f, const void* b, Count n, MPI_Datatype t, \
                                            MPI_Status* s) {                                    \
        ACCELERATED_OR(PMPI_File_write##suffix(f, b, n, t, s), write(file, start, b, n, t, s)); \
    }                                                                                           \
    ASSAY_EXPORT int MPI_File_read##suffix(MPI_File f, void* b, Count n, MPI_Datatype t,        \
                                           MPI_Status* s) {                                     \
        ACCELERATED_OR(PMPI_File_read##suffix(f, b, n, t, s), read(file, start, b, n, t, s));   \
    }
// Nonblocking transfers wait for no rank, so the collective ones are like the others.
#define START_AT(name, Count)                                                                 \
    ASSAY_EXPORT int MPI_File_iwrite_##name(MPI_File f, MPI_Offset o, const void* b, Count n, \
                                            MPI_Datatype t, MPI_Request* r) {                 \
        ACCELERATED_OR(PMPI_File_iwrite_##name(f, o, b, n, t, r),                             \
                       start_write(file, from_offset(o), b, n, t, r));                        \
    }                                                                                         \
    ASSAY_EXPORT int MPI_File_iread_##name(MPI_File f, MPI_Offset o, void* b, Count n,        \
                                           MPI_Datatype t, MPI_Request* r) {                  \
        ACCELERATED_OR(PMPI_File_iread_##name(f, o, b, n, t, r),                              \
                       start_read(file, from_offset(o), b, n, t, r));                         \
    }
#define START(suffix, Count, start)                                                              \
    ASSAY_EXPORT int MPI_File_iwrite##suffix(MPI_File f, const void* b, Count n, MPI_Datatype t, \
                                             MPI_Request* r) {                                   \
        ACCELERATED_OR(PMPI_File_iwrite##suffix(f, b, n, t, r),                                  \
                       start_write(file, start, b, n, t, r));                                    \
    }                                                                                            \
    ASSAY_EXPORT int MPI_File_iread##suffix(MPI_File f, void* b, Count n, MPI_Datatype t,        \
                                            MPI_Request* r) {                                    \
        ACCELERATED_OR(PMPI_File_iread##suffix(f, b, n, t, r),                                   \
                       start_read(file, start, b, n, t, r));                                     \
    }
#define SPLIT_AT(begin, Count)                                                                \
    ASSAY_EXPORT int MPI_File_write_at_all_##begin(MPI_File f, MPI_Offset o, const void* b,   \
                                                   Count n, MPI_Datatype t) {                 \
        ACCELERATED_OR(PMPI_File_write_at_all_##begin(f, o, b, n, t),                         \
                       begin_write(file, from_offset(o, true), b, n, t));                     \
    }                                                                                         \
    ASSAY_EXPORT int MPI_File_read_at_all_##begin(MPI_File f, MPI_Offset o, void* b, Count n, \
                                                  MPI_Datatype t) {                           \
        ACCELERATED_OR(PMPI_File_read_at_all_##begin(f, o, b, n, t),                          \
                       begin_read(file, from_offset(o, true), b, n, t));                      \
    }
#define SPLIT(suffix, Count, start)                                                               \
    ASSAY_EXPORT int MPI_File_write##suffix(MPI_File f, const void* b, Count n, MPI_Datatype t) { \
        ACCELERATED_OR(PMPI_File_write##suffix(f, b, n, t), begin_write(file, start, b, n, t));   \
    }                                                                                             \
    ASSAY_EXPORT int MPI_File_read##suffix(MPI_File f, void* b, Count n, MPI_Datatype t) {        \
        ACCELERATED_OR(PMPI_File_read##suffix(f, b, n, t), begin_read(file, start, b, n, t));     \
    }
#define SPLIT_END(name)                                                                      \
    ASSAY_EXPORT int MPI_File_write_##name##_end(MPI_File f, const void* b, MPI_Status* s) { \
        ACCELERATED_OR(PMPI_File_write_##name##_end(f, b, s), end_split(file, s));           \
    }                                                                                        \
    ASSAY_EXPORT int MPI_File_read_##name##_end(MPI_File f, void* b, MPI_Status* s) {        \
        ACCELERATED_OR(PMPI_File_read_##name##_end(f, b, s), end_split(file, s));            \
    }

DATA_AT(at, int, false)
DATA_AT(at_all, int, true)
DATA(, int, from_individual_pointer())
DATA(_all, int, from_individual_pointer(true))
DATA(_shared, int, from_shared_pointer)
DATA(_ordered, int, in_rank_order)
START_AT(at, int)
START_AT(at_all, int)
START(, int, from_individual_pointer())
START(_all, int, from_individual_pointer())
START(_shared, int, from_shared_pointer)
SPLIT_AT(begin, int)
SPLIT(_all_begin, int, from_individual_pointer(true))
SPLIT(_ordered_begin, int, in_rank_order)
SPLIT_END(at_all)
SPLIT_END(all)
SPLIT_END(ordered)
#if MPI_VERSION >= 4
DATA_AT(at_c, MPI_Count, false)
DATA_AT(at_all_c, MPI_Count, true)
DATA(_c, MPI_Count, from_individual_pointer())
DATA(_all_c, MPI_Count, from_individual_pointer(true))
DATA(_shared_c, MPI_Count, from_shared_pointer)
DATA(_ordered_c, MPI_Count, in_rank_order)
START_AT(at_c, MPI_Count)
START_AT(at_all_c, MPI_Count)
START(_c, MPI_Count, from_individual_pointer())
START(_all_c, MPI_Count, from_individual_pointer())
START(_shared_c, MPI_Count, from_shared_pointer)
SPLIT_AT(begin_c, MPI_Count)
SPLIT(_all_begin_c, MPI_Count, from_individual_pointer(true))
SPLIT(_ordered_begin_c, MPI_Count, in_rank_order)
#endif

// ---- files

ASSAY_EXPORT int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info,
                               MPI_File* f) {
    return AcceleratedFile::open(comm, name, mode, info, f);
}
ASSAY_EXPORT int MPI_File_close(MPI_File* f) {
    return AcceleratedFile::find(*f) ? AcceleratedFile::close(f) : PMPI_File_close(f);
}
ASSAY_EXPORT int MPI_File_delete(const char* name, MPI_Info info) {
    return AcceleratedFile::remove(name, info);
}
ASSAY_EXPORT int MPI_File_sync(MPI_File f) {
    ACCELERATED_OR(PMPI_File_sync(f), file->raise(file->sync()));
}
ASSAY_EXPORT int MPI_File_get_size(MPI_File f, MPI_Offset* size) {
    ACCELERATED_OR(PMPI_File_get_size(f, size), file->raise(file->get_size(size)));
}
ASSAY_EXPORT int MPI_File_set_size(MPI_File f, MPI_Offset size) {
    ACCELERATED_OR(PMPI_File_set_size(f, size), file->raise(file->set_size(size)));
}
ASSAY_EXPORT int MPI_File_preallocate(MPI_File f, MPI_Offset size) {
    ACCELERATED_OR(PMPI_File_preallocate(f, size), file->raise(file->preallocate(size)));
}
ASSAY_EXPORT int MPI_File_get_amode(MPI_File f, int* mode) {
    ACCELERATED_OR(PMPI_File_get_amode(f, mode), (*mode = file->mode(), MPI_SUCCESS));
}
ASSAY_EXPORT int MPI_File_get_info(MPI_File f, MPI_Info* info) {
    ACCELERATED_OR(PMPI_File_get_info(f, info), file->get_info(info));
}
ASSAY_EXPORT int MPI_File_get_group(MPI_File f, MPI_Group* group) {
    ACCELERATED_OR(PMPI_File_get_group(f, group), PMPI_Comm_group(file->comm(), group));
}

// ---- view and pointers

ASSAY_EXPORT int MPI_File_set_view(MPI_File f, MPI_Offset displacement, MPI_Datatype etype,
                                   MPI_Datatype filetype, const char* representation,
                                   MPI_Info info) {
    ACCELERATED_OR(
        PMPI_File_set_view(f, displacement, etype, filetype, representation, info),
        file->raise(file->set_view(displacement, etype, filetype, representation, info)));
}
ASSAY_EXPORT int MPI_File_set_atomicity(MPI_File f, int on) {
    ACCELERATED_OR(PMPI_File_set_atomicity(f, on), file->raise(file->set_atomicity(on)));
}
ASSAY_EXPORT int MPI_File_get_atomicity(MPI_File f, int* on) {
    ACCELERATED_OR(PMPI_File_get_atomicity(f, on), file->get_atomicity(on));
}
ASSAY_EXPORT int MPI_File_seek(MPI_File f, MPI_Offset offset, int whence) {
    ACCELERATED_OR(PMPI_File_seek(f, offset, whence), file->raise(file->seek(offset, whence)));
}
ASSAY_EXPORT int MPI_File_seek_shared(MPI_File f, MPI_Offset offset, int whence) {
    ACCELERATED_OR(PMPI_File_seek_shared(f, offset, whence),
                   file->raise(file->seek_shared(offset, whence)));
}
ASSAY_EXPORT int MPI_File_get_position(MPI_File f, MPI_Offset* offset) {
    ACCELERATED_OR(PMPI_File_get_position(f, offset), file->raise(file->get_position(offset)));
}
ASSAY_EXPORT int MPI_File_get_position_shared(MPI_File f, MPI_Offset* offset) {
    ACCELERATED_OR(PMPI_File_get_position_shared(f, offset),
                   file->raise(file->get_position_shared(offset)));
}
ASSAY_EXPORT int MPI_File_get_byte_offset(MPI_File f, MPI_Offset offset, MPI_Offset* displacement) {
    ACCELERATED_OR(PMPI_File_get_byte_offset(f, offset, displacement),
                   file->raise(file->get_byte_offset(offset, displacement)));
}

// ---- start and end of MPI

ASSAY_EXPORT int MPI_Init(int* argc, char*** argv) {
    const int code = PMPI_Init(argc, argv);
    if (!code) Job::start();
    return code;
}
ASSAY_EXPORT int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
    const int code = PMPI_Init_thread(argc, argv, required, provided);
    if (!code) Job::start();
    return code;
}
