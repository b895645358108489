// Checks whether a transport can be used here, for a launcher that is about to start ranks.
#pragma once

#include <string>

namespace assay {

// Throws Error unless $ASSAY_TRANSPORT may have this value ("tcp", "ofi:shm") on this host. The
// implementation is chosen at link time, like that of for_each_rank (transport.hpp).
void check_transport(const std::string& name);

}  // namespace assay
