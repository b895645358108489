// The engines' only error type: what is wrong, and how to fix it.
//
// Thrown anywhere and caught once, by report_errors (core/main.hpp), which prints "what; fix: ..."
// on standard error and exits with 2. Any other exception that reaches main is a defect of Assay.
#pragma once

#include <stdexcept>
#include <string>

namespace assay {

struct Error : std::runtime_error {
    explicit Error(const std::string& what, std::string fix_ = {})
        : std::runtime_error(what), fix(std::move(fix_)) {}
    std::string fix;
};

}  // namespace assay
