# The functions with which each folder of engines/ declares its targets.
#
# Most of a compilation is reading headers and instantiating their templates: 16 sources of engines/events take 98 s of
# processor time one by one, 25 s together. So the sources of a folder are compiled in groups of up to ASSAY_GROUP (a
# "unity build"); packaging/tidy.py checks each source alone. Names in unnamed namespaces are therefore unique in a folder.
set(ASSAY_GROUP 10)

# Compiles the target's sources in groups, a group for each folder or several.
function(assay_compile_in_groups target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "TARGET_OBJECTS")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MD5 key "${folder}")
    math(EXPR count_${key} "0${count_${key}} + 1")
    math(EXPR batch "(${count_${key}} - 1) / ${ASSAY_GROUP}")
    get_filename_component(folder ${folder} NAME)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Sources that are compiled alone: measured loops, and what executables link without the rest of its folder.
function(assay_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# What all of Assay's targets have: warnings, the version, the folder engines/ for #include.
function(assay_target target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/engines)
  target_compile_options(${target} PRIVATE ${ASSAY_WARNINGS})
  target_compile_definitions(${target} PRIVATE ASSAY_VERSION="${PROJECT_VERSION}")
endfunction()

# Adds the static library assay_FOLDER ('_' for '/') of all sources below engines/FOLDER; further arguments are what it
# links. A new measurement needs no line here.
function(assay_library folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engines/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "probe/registry\\.cpp$")  # main and the table of measurements belong to the executable
  string(REPLACE "/" "_" name ${folder})
  assay_library_of(assay_${name} "${sources}" ${ARGN})
endfunction()

# The same of a list of sources.
function(assay_library_of name sources)
  add_library(${name} STATIC ${sources})
  assay_target(${name})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/engines)
  if(ARGN)
    target_link_libraries(${name} PUBLIC ${ARGN})
  endif()
endfunction()

# For targets without loops that take time, such as main functions: they read command lines and write descriptions, in
# large templates. With -O3 their compilation takes twice as long.
function(assay_compile_quickly target)
  target_compile_options(${target} PRIVATE -O1)
endfunction()

# Adds an executable of bin/, which is installed; further arguments are its sources: main and what belongs to it.
function(assay_program name)
  add_executable(${name} ${ARGN})
  assay_target(${name})
  assay_compile_quickly(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS ${name} RUNTIME DESTINATION assay/bin)
endfunction()

# Adds an executable of bin/ for an MPI, NAME-MPI; further arguments are its sources. For an ABI (ASSAY_PORTABLE) it is
# libNAME-MPI.so, without an MPI library, and a program that loads both. Sets TARGET to what compiles the sources.
function(assay_mpi_program name mpi target)
  set(program ${name}-${mpi})
  if(ASSAY_PORTABLE)
    assay_program(${program} ${PROJECT_SOURCE_DIR}/engines/probe/abi_main.c)
    target_link_libraries(${program} PRIVATE ${CMAKE_DL_LIBS})
    if(mpi STREQUAL openmpi)
      target_compile_definitions(${program} PRIVATE ASSAY_OPEN_MPI)
    endif()
    set(program lib${program})
    add_library(${program} MODULE ${ARGN})
    assay_target(${program})
    set_target_properties(${program} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    target_link_options(${program} PRIVATE -Wl,--exclude-libs,ALL)
    install(TARGETS ${program} LIBRARY DESTINATION assay/bin)
  else()
    assay_program(${program} ${ARGN})
  endif()
  set(${target} ${program} PARENT_SCOPE)
endfunction()

# Sets RESULT to what NAME-MPI is linked from: its sources, which are the further arguments, or for the second MPI of an ABI
# the objects of the first. MPICH and its relatives have had one ABI since 2014 (https://www.mpich.org/abi/).
function(assay_mpi_sources result name mpi)
  set(${result} ${ARGN} PARENT_SCOPE)
  if(mpi STREQUAL mpich-wheel AND TARGET ${name}-mpich)
    set(${result} $<TARGET_OBJECTS:${name}-mpich> PARENT_SCOPE)
  endif()
endfunction()

# Adds the library bin/libNAME.so, which is loaded into other programs: without core, without exceptions, linked to the C
# library only, since the program has chosen its other libraries. Further arguments are its sources.
function(assay_injected target name)
  add_library(${target} SHARED ${ARGN})
  assay_target(${target})
  target_compile_options(${target} PRIVATE -fPIC -fno-exceptions -fno-rtti -fno-omit-frame-pointer -fvisibility=hidden
                         -fno-threadsafe-statics -fno-builtin-malloc -ftls-model=initial-exec)
  target_link_libraries(${target} PRIVATE assay_profile_stack ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,-z,nodelete -Wl,--exclude-libs,ALL)
  install(TARGETS ${target} LIBRARY DESTINATION assay/bin)
endfunction()
