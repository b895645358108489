# Finds every MPI on this machine and defines an interface target assay_mpi_<name> for each.
#
# CMake's own FindMPI supports one MPI at a time. This file asks each compiler wrapper for its flags (-show) and makes a
# target of them. ASSAY_MPIS lists the names:
#   openmpi, mpich      the system's (Debian installs both, with suffixed wrappers; elsewhere mpicxx on PATH)
#   mpich-wheel         PyPI's, in .venv, for machines without an MPI or without root
# The target assay_mpi_smpi is SimGrid's MPI, which runs the same measurements in a simulator; it is not in ASSAY_MPIS.
set(ASSAY_MPIS "")
include(${CMAKE_CURRENT_LIST_DIR}/MpiKind.cmake)

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
    if(flag MATCHES "^-L(.+)$" AND NOT CMAKE_MATCH_1 MATCHES "^/usr/lib/[^/]+$")
      target_link_options(assay_mpi_${name} INTERFACE "-Wl,-rpath,${CMAKE_MATCH_1}")
    endif()
  endforeach()
  list(APPEND ASSAY_MPIS ${name})
  set(ASSAY_MPIS ${ASSAY_MPIS} PARENT_SCOPE)
  message(STATUS "MPI: ${name} (${wrapper})")
endfunction()

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
