# The NUMA profiler: the recorder assay-numa, the library that it preloads (libassay-numa.so), and the libraries of the
# exact modes, which count every access: the runtime, the pass for clang and the plugin for QEMU.

# Adds a shared library that is loaded into other programs: without core, without exceptions, linked to the C library
# only. NAME is its file's name without lib and .so.
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

# The runtime of the exact modes: programs that are compiled for them link it.
file(GLOB sources CONFIGURE_DEPENDS ${numa}/exact/*.cpp)
assay_numa_injected(assay-numa-exact assay-numa-exact ${numa_hooks} ${numa}/hooks/apply.cpp ${numa}/format/lines.cpp ${sources})

# What gcc's assembler reads before each unit of such a program, so that it counts inline.
configure_file(${numa}/gcc/inline.s ${PROJECT_BINARY_DIR}/bin/assay-numa-gcc.s COPYONLY)
install(FILES ${numa}/gcc/inline.s DESTINATION assay/bin RENAME assay-numa-gcc.s)

# The pass for clang 14, where its headers are: built against LLVM's C++ interface, which has no run-time types.
find_program(LLVM_CONFIG NAMES llvm-config-14)
if(LLVM_CONFIG)
  execute_process(COMMAND ${LLVM_CONFIG} --includedir OUTPUT_VARIABLE llvm_include OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(GLOB sources CONFIGURE_DEPENDS ${numa}/llvm/*.cpp)
  add_library(assay-numa-pass MODULE ${sources})
  target_include_directories(assay-numa-pass PRIVATE engines)
  target_include_directories(assay-numa-pass SYSTEM PRIVATE ${llvm_include})
  target_compile_options(assay-numa-pass PRIVATE ${ASSAY_WARNINGS} -fPIC -fno-rtti -fno-exceptions)
  set_target_properties(assay-numa-pass PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  install(TARGETS assay-numa-pass LIBRARY DESTINATION assay/bin)
endif()

# The plugin of QEMU's user mode, GPL-2.0-or-later: QEMU alone loads it.
add_library(assay-numa-qemu MODULE ${numa}/qemu/plugin.cpp ${numa}/exact/nodes.cpp ${numa}/exact/rank.cpp
            ${numa}/format/lines.cpp)
target_include_directories(assay-numa-qemu PRIVATE engines)
target_compile_options(assay-numa-qemu PRIVATE ${ASSAY_WARNINGS} -fPIC -fno-rtti -fno-exceptions -fvisibility=hidden
                       -fno-threadsafe-statics)
set_target_properties(assay-numa-qemu PROPERTIES PREFIX "" LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
install(TARGETS assay-numa-qemu LIBRARY DESTINATION assay/bin)
