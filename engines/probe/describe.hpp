// What --describe prints: everything that Python needs to know of this executable, as one JSON
// object.
#pragma once

#include "core/record.hpp"

namespace assay {

Json describe();

}  // namespace assay
