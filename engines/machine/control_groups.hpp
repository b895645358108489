// The control groups of this process, where the kernel has mounted them.
#pragma once

namespace assay {

// A group as a folder, with the files of its controllers. `is_unified`: of version 2.
using VisitGroup = void (*)(void* data, const char* folder, bool is_unified);

// Calls `visit` for each group of this process that may have `controller` ("memory", "cpu"), from
// its own one to the root of the hierarchy, in all hierarchies of version 2 and in that of version
// 1 with the controller. The groups are those of /proc/self/cgroup, below the mount points of
// /proc/self/mountinfo; where this has none, below /sys/fs/cgroup, as systemd mounts them. A folder
// may not exist: a container may show a path of the host.
//
// `root` is a prefix of /proc, /sys and the mount points, for tests. Does not allocate.
void for_each_group(const char* root, const char* controller, VisitGroup visit, void* data);

}  // namespace assay
