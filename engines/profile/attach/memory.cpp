// Reads and writes the memory of another process through /proc/PID/mem.
#include "profile/attach/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {

Memory::Memory(pid_t pid)
    : fd_(open(fmt::format("/proc/{}/mem", pid).c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) throw_attach_denied(pid, errno);
}

Memory::~Memory() { close(fd_); }

bool Memory::read(std::uint64_t address, std::span<char> buffer) const {
    return pread(fd_, buffer.data(), buffer.size(), static_cast<off_t>(address)) ==
           static_cast<ssize_t>(buffer.size());
}

void Memory::write(std::uint64_t address, std::span<const char> bytes) const {
    if (pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(address)) !=
        static_cast<ssize_t>(bytes.size()))
        throw Error("the process has ended or now runs another program");
}

std::string Memory::text(std::uint64_t address, std::size_t max_bytes) const {
    std::string text;
    for (char c; text.size() < max_bytes && (c = get<char>(address + text.size())) != 0;) text += c;
    return text;
}

bool Memory::is_mapped(std::uint64_t address) const {
    char c;
    return pread(fd_, &c, 1, static_cast<off_t>(address)) == 1;
}

}  // namespace assay::attach
