# Every MPI on this machine, side by side, each as an interface target assay_mpi_<name>.
#
# CMake's own FindMPI knows one MPI at a time. Here each compiler wrapper is asked what it adds (-show),
# and those flags become a target. ASSAY_MPIS lists the names found:
#   openmpi, mpich      the system's (Debian installs both, with suffixed wrappers; elsewhere mpicxx on PATH)
#   mpich-wheel         PyPI's, in the set-up's environment: for machines without an MPI or without root
# and, apart from them, smpi: SimGrid's, by whose simulator the same measurements are run on a platform file.
set(ASSAY_MPIS "")

function(assay_add_mpi name wrapper)
  if(NOT EXISTS "${wrapper}" OR name IN_LIST ASSAY_MPIS)
    return()
  endif()
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE shown RESULT_VARIABLE status ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    return()
  endif()
  separate_arguments(words UNIX_COMMAND "${shown}")
  list(POP_FRONT words)
  # The C bindings only: Assay calls the plain C interface.
  list(FILTER words EXCLUDE REGEX "^-l(mpi_cxx|mpichcxx|mpicxx)$")
  set(compile ${words})
  list(FILTER compile INCLUDE REGEX "^-(I|D|pthread)")
  set(link ${words})
  list(FILTER link INCLUDE REGEX "^-(L|l|Wl|pthread)")
  list(JOIN link " " link)
  add_library(assay_mpi_${name} INTERFACE)
  target_compile_options(assay_mpi_${name} INTERFACE ${compile})
  target_link_libraries(assay_mpi_${name} INTERFACE "${link}")
  # A wrapper's libraries lie where its -L says, also at run time.
  foreach(word IN LISTS words)
    if(word MATCHES "^-L(.+)$" AND NOT CMAKE_MATCH_1 MATCHES "^/usr/lib/[^/]+$")
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

# A site's own MPI (environment modules): mpicxx on PATH, named by what it says it is.
find_program(ASSAY_WRAPPER_PATH mpicxx)
if(ASSAY_WRAPPER_PATH)
  execute_process(COMMAND ${ASSAY_WRAPPER_PATH} -show OUTPUT_VARIABLE shown ERROR_QUIET)
  if(shown MATCHES "openmpi|open-mpi|-lmpi_cxx|-lopen-rte")
    assay_add_mpi(openmpi "${ASSAY_WRAPPER_PATH}")
  elseif(shown MATCHES "mpich|-lmpi")
    assay_add_mpi(mpich "${ASSAY_WRAPPER_PATH}")
  endif()
endif()

assay_add_mpi(mpich-wheel "${PROJECT_SOURCE_DIR}/.venv/bin/mpicxx")

# SimGrid's wrapper makes a shared object, which its own main program loads once a simulated rank; the C interface
# only, and none of its macros over malloc, clocks and exit, which are for programs that know nothing of it.
find_program(ASSAY_WRAPPER_smpi smpicxx)
assay_add_mpi(smpi "${ASSAY_WRAPPER_smpi}")
list(REMOVE_ITEM ASSAY_MPIS smpi)
if(TARGET assay_mpi_smpi)
  target_compile_definitions(assay_mpi_smpi INTERFACE ASSAY_SIMULATED)
endif()
