// Reads the state of a process from /proc, and checks whether the recorder can attach to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace assay::attach {

// The value of a "name: value" line of a status file in /proc; empty if there is none.
std::string status_field(const std::string& file, const std::string& name);

// Whether an object is glibc's C library, according to its name.
bool is_libc(const std::string& path);

// A mapped part of a file.
struct Mapping {
    std::uint64_t begin = 0, end = 0, offset = 0;
    std::string path;
};
std::vector<Mapping> mapped_files(pid_t pid);

// Throws Error with the reason if there is no such process or it cannot be recorded.
void check_attachable(pid_t pid, const std::string& library);

[[noreturn]] void throw_attach_denied(pid_t pid, int error);

}  // namespace assay::attach
