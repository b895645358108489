// The one error of the engines: what is wrong, and the hint that mends it.
//
// Thrown anywhere, caught once in probe/main.cpp, which prints "what; hint" on standard error and
// exits with 2. Anything else that reaches main is a defect of Assay.
#pragma once

#include <stdexcept>
#include <string>

namespace assay {

struct Error : std::runtime_error {
    explicit Error(std::string what, std::string hint_ = {})
        : std::runtime_error(std::move(what)), hint(std::move(hint_)) {}
    std::string hint;
};

}  // namespace assay
