# For CMake: this machine's compiler with the sysroot that packaging/wheel.sh makes.
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
set(work ${source}/build/wheel)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)
set(CMAKE_SYSROOT ${work}/sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(lib ${CMAKE_SYSROOT}/usr/lib/x86_64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "${lib}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(PKG_CONFIG_ARGN --static)
# GCC looks beside itself before it looks in the sysroot, unless it is told. GCC 12's libgcc_eh asks glibc 2.35 for its list
# of objects; that of GCC 10 does not.
string(JOIN " " link -B${lib}/ -B${CMAKE_SYSROOT}/usr/lib/gcc/x86_64-linux-gnu/10/ -static-libgcc -static-libstdc++
       ${work}/shim.o -Wl,--gc-sections)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${link}")
endforeach()
set(CMAKE_CXX_FLAGS_INIT "-ffile-prefix-map=${source}=.")
set(CMAKE_C_FLAGS_INIT "${CMAKE_CXX_FLAGS_INIT}")
# From glibc 2.34 on they are in libc.
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT "-Wl,--as-needed -lpthread -ldl -lrt")
set(CMAKE_C_STANDARD_LIBRARIES_INIT "${CMAKE_CXX_STANDARD_LIBRARIES_INIT}")
