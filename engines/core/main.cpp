// Prints the exceptions of a program's main.
#include "core/main.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>

#include "core/error.hpp"
#include "core/text.hpp"

namespace assay {

int report_errors(std::string_view program, const std::function<int()>& body) {
    try {
        return body();
    } catch (const Error& error) {
        fmt::print(stderr, "{}: {}{}{}\n", program, printable(error.what()),
                   error.fix.empty() ? "" : "; fix: ", printable(error.fix));
    } catch (const std::system_error& error) {
        const bool has_limit = error.code() == std::errc::resource_unavailable_try_again;
        fmt::print(stderr, "{}: {}{}\n", program,
                   has_limit ? "cannot start a thread; " : "defect: ",
                   has_limit ? "fix: raise the limit (ulimit -u, or pids.max of the control group)"
                             : printable(error.what()));
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: defect: {}\n", program, printable(error.what()));
    }
    return exit_unusable;
}

}  // namespace assay
