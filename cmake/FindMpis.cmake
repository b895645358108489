# Finds every MPI on this machine and defines an interface target assay_mpi_<name> for each.
#
# CMake's own FindMPI supports one MPI at a time. This file asks each compiler wrapper for its flags (-show) and makes a
# target of them. ASSAY_MPIS lists the names:
#   openmpi, mpich      the system's (Debian installs both, with suffixed wrappers; elsewhere mpicxx on PATH)
#   mpich               also Cray's, by its module or its compiler CC
#   mpich-wheel         PyPI's, in .venv, for machines without an MPI or without root
# The target assay_mpi_smpi is SimGrid's MPI, which runs the same measurements in a simulator; it is not in ASSAY_MPIS.
set(ASSAY_MPIS "")
include(${CMAKE_CURRENT_LIST_DIR}/MpiKind.cmake)

# Defines the target assay_mpi_NAME. FLAGS: the wrapper's flags for compiling and linking, as a list. ORIGIN: where they
# come from, for the message.
function(assay_add_mpi_flags name origin flags)
  # Assay calls the C interface only.
  list(FILTER flags EXCLUDE REGEX "^-l(mpi_cxx|mpichcxx|mpicxx)$")
  set(compile ${flags})
  list(FILTER compile INCLUDE REGEX "^-(I|D|pthread)")
  set(link ${flags})
  list(FILTER link INCLUDE REGEX "^-(L|l|Wl|pthread)")
  list(JOIN link " " link)
  add_library(assay_mpi_${name} INTERFACE)
  target_compile_options(assay_mpi_${name} INTERFACE ${compile})
  target_link_libraries(assay_mpi_${name} INTERFACE "${link}")
  # At run time the libraries are found in the wrapper's -L folders.
  foreach(flag IN LISTS flags)
    if(flag MATCHES "^-L(.+)$")
      set(folder "${CMAKE_MATCH_1}")
      if(NOT folder MATCHES "^/usr/lib/[^/]+$")
        target_link_options(assay_mpi_${name} INTERFACE "-Wl,-rpath,${folder}")
      endif()
    endif()
  endforeach()
  list(APPEND ASSAY_MPIS ${name})
  set(ASSAY_MPIS ${ASSAY_MPIS} PARENT_SCOPE)
  message(STATUS "MPI: ${name} (${origin})")
endfunction()

# Defines the target assay_mpi_NAME from the flags that WRAPPER prints; does nothing if there is no such wrapper.
function(assay_add_mpi name wrapper)
  if(NOT EXISTS "${wrapper}" OR name IN_LIST ASSAY_MPIS)
    return()
  endif()
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE shown RESULT_VARIABLE status ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    return()
  endif()
  separate_arguments(flags UNIX_COMMAND "${shown}")
  list(POP_FRONT flags)
  assay_add_mpi_flags(${name} "${wrapper}" "${flags}")
  set(ASSAY_MPIS ${ASSAY_MPIS} PARENT_SCOPE)
endfunction()

# Cray's compilers, cc and CC, are wrappers for all libraries whose modules are loaded. None is called mpicxx, and they
# have no -show. The module cray-mpich sets CRAY_MPICH_DIR; without it CC prints its flags.
if(EXISTS "$ENV{CRAY_MPICH_DIR}/include/mpi.h")
  assay_add_mpi_flags(mpich "$ENV{CRAY_MPICH_DIR}"
                      "-I$ENV{CRAY_MPICH_DIR}/include;-L$ENV{CRAY_MPICH_DIR}/lib;-lmpi")
else()
  find_program(ASSAY_WRAPPER_CRAY CC)
  if(ASSAY_WRAPPER_CRAY)
    execute_process(COMMAND ${ASSAY_WRAPPER_CRAY} --cray-print-opts=all OUTPUT_VARIABLE shown
                    RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE TIMEOUT 60)
    if(status EQUAL 0 AND shown MATCHES "-l(:?lib)?mpi")
      separate_arguments(flags UNIX_COMMAND "${shown}")
      assay_add_mpi_flags(mpich "${ASSAY_WRAPPER_CRAY}" "${flags}")
    endif()
  endif()
endif()

foreach(flavour openmpi mpich)
  find_program(ASSAY_WRAPPER_${flavour} mpicxx.${flavour})
  assay_add_mpi(${flavour} "${ASSAY_WRAPPER_${flavour}}")
endforeach()

# A site's own MPI (environment modules): mpicxx on PATH, named by its header.
find_program(ASSAY_WRAPPER_PATH mpicxx)
if(ASSAY_WRAPPER_PATH)
  assay_mpi_kind("${ASSAY_WRAPPER_PATH}" kind)
  if(kind)
    assay_add_mpi(${kind} "${ASSAY_WRAPPER_PATH}")
  endif()
endif()

assay_add_mpi(mpich-wheel "${PROJECT_SOURCE_DIR}/.venv/bin/mpicxx")

# SimGrid's wrapper makes a shared object, which smpirun loads once for each simulated rank. Its macros over malloc,
# clocks and exit are for unmodified programs and are not used here.
find_program(ASSAY_WRAPPER_smpi smpicxx)
assay_add_mpi(smpi "${ASSAY_WRAPPER_smpi}")
list(REMOVE_ITEM ASSAY_MPIS smpi)
if(TARGET assay_mpi_smpi)
  target_compile_definitions(assay_mpi_smpi INTERFACE ASSAY_SIMULATED)
endif()
