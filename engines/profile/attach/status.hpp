// What the system says of a process, and whether it can be attached to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace assay::attach {

// Of a status file of /proc; empty where there is none such.
std::string field_of(const std::string& file, const std::string& name);

// Whether an object is glibc's C library, by its name.
bool is_libc(const std::string& path);

// A part of a file that is mapped.
struct Mapping {
    std::uint64_t begin = 0, end = 0, offset = 0;
    std::string path;
};
std::vector<Mapping> files_mapped_in(pid_t pid);

// Throws Error: there is no such process, or it is one that cannot be recorded, and why.
void check(pid_t pid, const std::string& library);

[[noreturn]] void throw_not_allowed(pid_t pid, int error);

}  // namespace assay::attach
