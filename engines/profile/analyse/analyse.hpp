// A trace read from its beginning to its end, and told as one JSON object.
#pragma once

#include <cstdio>
#include <string>

namespace assay::heap {

// Throws Error when there is nothing to read. What is damaged is left out, and said in the object.
void analyse(const std::string& trace, std::FILE* to);

}  // namespace assay::heap
