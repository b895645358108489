// What the system says of a file: its name, its kind, and how fine its times are.
#pragma once

#include <cstdint>
#include <string>

namespace assay::storage {

// The path of a file that the program names, without the prefix of a file system, such as "ufs:".
// `any_prefix`: what stands before a colon is one; else only what ROMIO knows, before a full path.
std::string strip_prefix(const char* name, bool any_prefix);

// The path of an open file, without symbolic links. It needs one system call, where realpath()
// needs one for each folder. `opened`: the path with which it was opened.
std::string path_of(int fd, const std::string& opened);

// The name from the root, so that it stays the same if the program changes its folder.
std::string absolute(const std::string& name);

bool is_symbolic_link(const std::string& name);

// Whether the file is on a file system of the kernel, whose files have no size.
bool is_kernel_file(int fd);

// Whether few descriptors are left. The accelerator needs two descriptors per file, the MPI library
// alone one. It leaves a quarter of the limit to the program.
bool descriptors_are_scarce(int fd);

// A change by another program in the same tick as the last write would not be noticed at the next
// open, so close waits for the end of the tick.
void wait_for_clock_tick(int fd, std::int64_t last_write_ns);

}  // namespace assay::storage
