// The amount of memory that this process can still allocate.
#pragma once

#include <cstdint>

namespace assay {

// Bytes: the machine's available memory (MemAvailable; before Linux 3.14 what is free or file
// cache), or less where a control group of version 2 or 1 limits the process. Of a group it is the
// limit (memory.max, memory.high) minus what the group uses; its file cache and reclaimable slab do
// not count as used, for the kernel drops them before it refuses memory, as in MemAvailable. The
// limits of all groups above hold too. ~0 where nothing is known.
//
// `root` is a prefix of /proc, /sys and mount points, for tests. It does not allocate: measured
// processes and programs that Assay is loaded into call it.
std::uint64_t available_memory(const char* root);

// The same with the prefix $ASSAY_ROOT.
std::uint64_t available_memory();

}  // namespace assay
