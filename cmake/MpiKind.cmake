# Sets RESULT to the kind of MPI that a compiler wrapper builds for: "openmpi", "mpich", or "" if it has no mpi.h.
#
# The macros of mpi.h decide, because the paths and library names of Open MPI 5 and HPC-X do not contain "openmpi".
# Intel MPI, MVAPICH and Cray's MPI have MPICH's ABI and count as "mpich".
function(assay_mpi_kind wrapper result)
  set(kind "")
  string(RANDOM LENGTH 8 unique)
  set(source "$ENV{TMPDIR}")
  if(NOT source)
    set(source /tmp)
  endif()
  set(source "${source}/assay-mpi-${unique}.cpp")
  file(WRITE "${source}" "#include <mpi.h>\n")
  execute_process(COMMAND "${wrapper}" -E -dM "${source}" OUTPUT_VARIABLE macros ERROR_QUIET TIMEOUT 60)
  file(REMOVE "${source}")
  if(macros MATCHES "#define (OPEN_MPI|OMPI_MAJOR_VERSION) ")
    set(kind openmpi)
  elseif(macros MATCHES "#define (MPICH_VERSION|MPICH_NUMVERSION|I_MPI_VERSION|MVAPICH_VERSION|MVAPICH2_VERSION) ")
    set(kind mpich)
  endif()
  set(${result} "${kind}" PARENT_SCOPE)
endfunction()
