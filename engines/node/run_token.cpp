// Reads the token of a run from a private file or from standard input.
#include "node/run_token.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace assay::node {
namespace {

constexpr std::size_t token_digits = 64;
constexpr int stdin_limit_ms = 10'000;

// The first line of a descriptor, of `token_digits` characters at most.
std::string read_line(int fd, int limit_ms) {
    std::string line;
    while (line.size() <= token_digits) {
        pollfd polled{fd, POLLIN, 0};
        char character;
        if (poll(&polled, 1, limit_ms) <= 0 || read(fd, &character, 1) != 1 || character == '\n')
            break;
        line += character;
    }
    return line;
}

std::string read_private_file(const std::string& path) {
    const std::string make = fmt::format(
        "make it on one side and copy it to the other: (umask 077; openssl rand -hex 32 >{})",
        path);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status{};
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int error = errno;
        if (fd >= 0) close(fd);
        throw Error(fmt::format("cannot read the token {}: {}", path, std::strerror(error)), make);
    }
    const bool is_private =
        S_ISREG(status.st_mode) && (status.st_mode & 077) == 0 && status.st_uid == geteuid();
    const std::string line = is_private ? read_line(fd, 0) : "";
    close(fd);
    if (!is_private)
        throw Error(fmt::format("others may read the token {}", path),
                    fmt::format("chmod 600 {}; it must be a file of yours", path));
    return line;
}

}  // namespace

std::optional<session::Token> read_run_token(const std::string& source) {
    if (source.empty()) return std::nullopt;
    const std::string line =
        source == "-" ? read_line(STDIN_FILENO, stdin_limit_ms) : read_private_file(source);
    const auto token = session::token_from(line);
    if (!token)
        throw Error(source == "-"
                        ? "no token of 64 hexadecimal digits came on standard input"
                        : fmt::format("{} does not begin with 64 hexadecimal digits", source),
                    "openssl rand -hex 32 makes one");
    return token;
}

}  // namespace assay::node
