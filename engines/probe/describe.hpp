// The output of --describe: the measurements of this executable with their parameters and metrics,
// and the known facts, as one JSON object. Python reads it.
#pragma once

#include <span>

#include "core/record.hpp"

namespace assay {

Json describe(std::span<const Measurement> table);

}  // namespace assay
