// Error handling for the main of every executable: one line on standard error, and an exit code.
#pragma once

#include <functional>
#include <string_view>

namespace assay {

inline constexpr int exit_unusable = 2;  // bad input, or the program cannot run here

// Returns the exit code of `body`. An Error is printed as "program: what; fix: ..." and gives
// exit_unusable; any other exception is printed as a defect.
int report_errors(std::string_view program, const std::function<int()>& body);

}  // namespace assay
