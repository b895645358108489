// Demangles C++ symbol names with the C++ runtime.
#include "profile/analyse/demangle.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>

namespace assay::heap {

std::string demangle(const char* name) {
    constexpr std::size_t max_bytes = 64 << 10;
    // The demangler would turn the C function "t" into "unsigned short".
    if (name[0] != '_' || name[1] != 'Z' || std::strlen(name) > max_bytes) return name;
    int status = 0;
    char* readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string text = status == 0 && readable != nullptr ? readable : name;
    std::free(readable);
    return text;
}

}  // namespace assay::heap
