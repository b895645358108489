// Conversion of errno and MPI error codes to MPI error classes, which all ranks understand.
#pragma once

#include <cerrno>

#include "storage/accelerator/mpi.hpp"

namespace assay::storage {

// The MPI error class of an errno; 0: MPI_SUCCESS.
inline int mpi_error(int error) {
    switch (error) {
        case 0: return MPI_SUCCESS;
        case ENOSPC: return MPI_ERR_NO_SPACE;
        case EDQUOT: return MPI_ERR_QUOTA;
        case EROFS: return MPI_ERR_READ_ONLY;
        case EACCES:
        case EPERM: return MPI_ERR_ACCESS;
        case ENOENT: return MPI_ERR_NO_SUCH_FILE;
        case ENOMEM: return MPI_ERR_NO_MEM;
        default: return MPI_ERR_IO;
    }
}

// The class of an error code of the MPI library. A code is valid only in the process that got it, a
// class in all.
inline int error_class_of(int code) {
    int result = code;
    if (code != MPI_SUCCESS) PMPI_Error_class(code, &result);
    return result;
}

// Collective: the highest error class of all ranks, on every rank.
inline int worst_error_class(MPI_Comm comm, int code) {
    int worst = error_class_of(code);
    PMPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, comm);
    return worst;
}

}  // namespace assay::storage
