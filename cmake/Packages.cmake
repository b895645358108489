# The libraries that the engines use. The optional ones add a measurement or a transport where their header is found; the
# library itself is loaded at run time if it exists.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
set(ASSAY_FMT fmt::fmt)
if(ASSAY_PORTABLE)
  set(ASSAY_FMT fmt::fmt-header-only)  # Debian has no static libfmt
endif()
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tsl-robin-map REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(DW REQUIRED IMPORTED_TARGET libdw)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# libsodium is static and hidden: a program that loads Assay may use another version.
find_library(SODIUM_ARCHIVE libsodium.a REQUIRED)
find_path(SODIUM_INCLUDE sodium/crypto_auth_hmacsha256.h REQUIRED)

option(ASSAY_RDMA "measure RDMA if libibverbs' header is found" ON)
pkg_check_modules(IBVERBS libibverbs)
option(ASSAY_OFI "the libfabric transport if libfabric's header is found" ON)
pkg_check_modules(LIBFABRIC libfabric)

# Some builds of xxHash choose the instruction set at run time.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::XXHASH)
check_cxx_source_compiles("#include <xxh_x86dispatch.h>
int main() { return static_cast<int>(XXH3_64bits(nullptr, 0)); }" ASSAY_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)
