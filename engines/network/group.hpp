// What every measurement of a group does around its own part.
#pragma once

#include <functional>

#include "core/options.hpp"
#include "network/session.hpp"

namespace assay::network {

// Makes the session and runs `body`. An Error is thrown by every rank alike; rank 0 passes it on,
// so that the user reads it once.
void run_group(const Options& options, Bench& bench, const std::function<void(Session&)>& body);

}  // namespace assay::network
