// The amount of memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <string>

namespace assay::storage {

// The machine's available memory, or less where a control group (v2 or v1) limits the process: the
// limit minus what the group uses. Inactive file pages do not count as used, because the kernel
// drops them first. Returns bytes. `root` is a prefix of /proc and /sys, for tests.
std::uint64_t available_memory(const std::string& root = {});

}  // namespace assay::storage
