// Starts a program with the hooks in it, and records it and every process that it starts.
#pragma once

#include <string>
#include <vector>

namespace assay::heap {

// Traces go to `folder`, which must exist: PID.N.heap. Gives the program's exit status as wait() does. Throws Error
// when the program cannot be started; then nothing was recorded.
int record(const std::string& folder, const std::string& library, std::vector<std::string> program);

}  // namespace assay::heap
