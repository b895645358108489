// A trace read from its beginning to its end, and told as one JSON object.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace assay::heap {

// Of a trace that is still being written, the first `bytes`. Throws Error when there is nothing to read. What is damaged
// is left out, and said in the object.
void analyse(const std::string& trace, std::uint64_t bytes, std::FILE* to);

}  // namespace assay::heap
