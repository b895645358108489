// A process as /proc shows it, and the checks whether it can be attached to.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace assay::attach {

// The value of a "name: value" line of a status file in /proc; empty when there is none.
std::string field_of(const std::string& file, const std::string& name);

// Whether an object is glibc's C library, judged by its name.
bool is_libc(const std::string& path);

// A mapped part of a file.
struct Mapping {
    std::uint64_t begin = 0, end = 0, offset = 0;
    std::string path;
};
std::vector<Mapping> mapped_files(pid_t pid);

// Throws Error when there is no such process or it cannot be recorded; the Error says why.
void check_attachable(pid_t pid, const std::string& library);

[[noreturn]] void throw_not_allowed(pid_t pid, int error);

}  // namespace assay::attach
