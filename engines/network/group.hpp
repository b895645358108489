// The set-up and error handling that all group measurements share.
#pragma once

#include <functional>

#include "core/options.hpp"
#include "network/session.hpp"

namespace assay::network {

// Creates the session and runs `body`. Every rank throws the same Error; only rank 0 rethrows it,
// so that the user reads it once.
void run_group(const Options& options, Bench& bench, const std::function<void(Session&)>& body);

}  // namespace assay::network
