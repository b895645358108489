// Prints the exceptions of a program's main.
#include "core/main.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>
#include <typeinfo>

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
        // Of a thread that cannot be started; errors of files are of derived types.
        const bool has_limit = typeid(error) == typeid(std::system_error) &&
                               error.code() == std::errc::resource_unavailable_try_again;
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
