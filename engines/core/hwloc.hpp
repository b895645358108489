// The topology that hwloc has read, for the sources of core that describe the machine.
#pragma once

#include <hwloc.h>

namespace assay {

hwloc_topology_t hwloc_of_this_machine();

// Whether the files of /sys describe the machine of hwloc: not where $ASSAY_TOPOLOGY plants it,
// unless $ASSAY_ROOT plants its files too.
bool kernel_describes_machine();

}  // namespace assay
