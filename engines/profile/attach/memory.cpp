#include "profile/attach/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {

Memory::Memory(pid_t pid)
    : fd_(open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) throw_not_allowed(pid, errno);
}

Memory::~Memory() { close(fd_); }

bool Memory::read(std::uint64_t at, std::span<char> into) const {
    return pread(fd_, into.data(), into.size(), static_cast<off_t>(at)) ==
           static_cast<ssize_t>(into.size());
}

void Memory::write(std::uint64_t at, std::span<const char> bytes) const {
    if (pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)) !=
        static_cast<ssize_t>(bytes.size()))
        throw Error("the process has ended, or runs another program now");
}

std::string Memory::text(std::uint64_t at, std::size_t most) const {
    std::string found;
    for (char c; found.size() < most && (c = get<char>(at + found.size())) != 0;) found += c;
    return found;
}

bool Memory::is_there(std::uint64_t at) const {
    char c;
    return pread(fd_, &c, 1, static_cast<off_t>(at)) == 1;
}

}  // namespace assay::attach
