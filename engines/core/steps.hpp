// Reads the steps of an exchange from a file. Each line is a step: the destinations of rank 0, 1,
// ..., separated by blanks; -1 means none. Text after # is a comment. `assay fabric schedule`
// writes such files.
#pragma once

#include <string>
#include <vector>

namespace assay {

// Returns the destinations as [step][rank], -1 for none. A rank that names itself does not send. In
// a step each rank receives from at most one other. Throws Error with the line number for anything
// else, and for a file in which no rank sends.
std::vector<std::vector<int>> read_steps(const std::string& path, int ranks);

}  // namespace assay
