// What --describe prints: everything that Python needs to know of this executable, as one JSON object.
#pragma once

#include "core/record.hpp"

namespace assay {

Json describe(const std::string& transport);

}  // namespace assay
