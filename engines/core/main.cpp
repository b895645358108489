// Prints the exceptions of a program's main.
#include "core/main.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "core/error.hpp"
#include "core/text.hpp"

namespace assay {

int report_errors(std::string_view program, const std::function<int()>& body) {
    try {
        return body();
    } catch (const Error& error) {
        fmt::print(stderr, "{}: {}{}{}\n", program, printable(error.what()),
                   error.fix.empty() ? "" : "; fix: ", printable(error.fix));
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: defect: {}\n", program, printable(error.what()));
    }
    return exit_unusable;
}

}  // namespace assay
