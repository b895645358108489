// Prints the exceptions of a program's main.
#include "core/main.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "core/error.hpp"

namespace assay {

int report_errors(std::string_view program, const std::function<int()>& body) {
    try {
        return body();
    } catch (const Error& error) {
        fmt::print(stderr, "{}: {}{}{}\n", program, error.what(),
                   error.fix.empty() ? "" : "; fix: ", error.fix);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: defect: {}\n", program, error.what());
    }
    return exit_unusable;
}

}  // namespace assay
