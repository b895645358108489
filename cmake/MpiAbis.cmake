# Defines assay_mpi_mpich and assay_mpi_openmpi for engines that run with any MPI of an ABI: from the headers of one MPI of
# each, without a library. The site's library is loaded at run time (engines/probe/abi_main.c).
#
#   mpich     MPICH, Intel MPI, MVAPICH, Cray MPICH: one ABI since 2014 (https://www.mpich.org/abi/)
#   openmpi   Open MPI 4 and 5, HPC-X
set(ASSAY_MPIS mpich openmpi)
set(headers_mpich mpich)
set(headers_openmpi openmpi/include)
foreach(mpi IN LISTS ASSAY_MPIS)
  find_path(ASSAY_HEADERS_${mpi} mpi.h PATH_SUFFIXES ${headers_${mpi}} REQUIRED NO_CMAKE_PATH
            PATHS /usr/include/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu)
  add_library(assay_mpi_${mpi} INTERFACE)
  target_compile_options(assay_mpi_${mpi} INTERFACE "SHELL:-isystem ${ASSAY_HEADERS_${mpi}}")
endforeach()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_compile_options(-fno-semantic-interposition)
