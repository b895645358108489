// MPI's C interface, without any symbol that must exist when this library is loaded.
//
// The library is preloaded into every process of a command line, also into those without MPI.
// Functions are bound lazily; the objects that some MPIs use for constants are weak symbols.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#ifdef OMPI_MAJOR_VERSION
#pragma weak ompi_mpi_comm_world
#pragma weak ompi_mpi_comm_self
#pragma weak ompi_mpi_comm_null
#pragma weak ompi_mpi_info_null
#pragma weak ompi_mpi_file_null
#pragma weak ompi_mpi_byte
#pragma weak ompi_mpi_int
#pragma weak ompi_mpi_int64_t
#pragma weak ompi_mpi_uint32_t
#pragma weak ompi_mpi_uint64_t
#pragma weak ompi_mpi_op_max
#pragma weak ompi_mpi_op_min
#pragma weak ompi_mpi_op_sum
#pragma weak ompi_mpi_datatype_null
#pragma weak ompi_mpi_short_int
#pragma weak ompi_mpi_longdbl_int
#pragma weak ompi_request_null
#pragma weak ompi_mpi_errors_return
#pragma weak ompi_mpi_win_null
#pragma weak OMPI_C_MPI_TYPE_NULL_COPY_FN
#endif

// Whether the MPI's I/O takes what stands before a colon for a file system. ROMIO does. Open MPI's
// own takes names as they are, also "wrfout_2026-11-30_12:00", but may leave a file to ROMIO.
#ifdef OMPI_MAJOR_VERSION
constexpr bool any_prefix = false;
#else
constexpr bool any_prefix = true;
#endif

// Marks the functions that the program calls; all other symbols are hidden.
#define ASSAY_EXPORT extern "C" __attribute__((visibility("default")))
