// The steps of an exchange, from a file: a step a line, the destinations of rank 0, 1, ...
// separated by blanks, -1 for none; text after # is a comment. `assay fabric schedule` writes such
// files.
#pragma once

#include <string>
#include <vector>

namespace assay {

// [steps][ranks] destinations, -1 for none; nobody sends to itself, and a rank receives from one
// other at most. Throws Error with the line for anything else, and for a file without a flow.
std::vector<std::vector<int>> read_steps(const std::string& path, int ranks);

}  // namespace assay
