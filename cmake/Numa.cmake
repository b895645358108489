# The NUMA profiler: the recorder assay-numa, the part that it preloads (libassay-numa.so), and the parts of the exact
# modes.

# Injected into other programs: without core, without exceptions, linked to the C library only.
function(assay_numa_injected target name)
  add_library(${target} SHARED ${ARGN})
  target_compile_options(${target} PRIVATE ${ASSAY_WARNINGS} -fPIC -fno-exceptions -fno-rtti -fno-omit-frame-pointer
                         -fvisibility=hidden -fno-threadsafe-statics -fno-builtin-malloc -ftls-model=initial-exec)
  target_include_directories(${target} PRIVATE engines)
  target_link_libraries(${target} PRIVATE assay_profile_stack ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_link_options(${target} PRIVATE -Wl,-z,defs -Wl,-z,nodelete -Wl,--exclude-libs,ALL)
  install(TARGETS ${target} LIBRARY DESTINATION assay/bin)
endfunction()

set(numa engines/profile/numa)
set(numa_hooks ${numa}/hooks/allocation.cpp ${numa}/hooks/placement.cpp ${numa}/hooks/capture.cpp)
assay_numa_injected(assay-numa-hooks assay-numa ${numa_hooks} ${numa}/hooks/touch.cpp ${numa}/hooks/apply.cpp)

add_library(assay_profile_numa STATIC ${numa}/format/lines.cpp)
file(GLOB sources CONFIGURE_DEPENDS ${numa}/record/*.cpp)
target_sources(assay_profile_numa PRIVATE ${sources})
target_compile_options(assay_profile_numa PRIVATE ${ASSAY_WARNINGS})
target_include_directories(assay_profile_numa PUBLIC engines)
target_link_libraries(assay_profile_numa PUBLIC assay_profile_analyse)
add_executable(assay-numa ${numa}/main.cpp)
target_compile_options(assay-numa PRIVATE ${ASSAY_WARNINGS})
target_link_libraries(assay-numa PRIVATE assay_profile_numa)
set_target_properties(assay-numa PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
install(TARGETS assay-numa RUNTIME DESTINATION assay/bin)
