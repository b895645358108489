// Reads /proc files of a process and checks whether the recorder can attach to it.
#include "profile/attach/status.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/topology.hpp"

namespace assay::attach {
namespace {

namespace fs = std::filesystem;

std::string read_link(const std::string& path) {
    std::error_code ignored;
    return fs::read_symlink(path, ignored);
}

std::string read_name(pid_t pid) { return read_line(fmt::format("/proc/{}/comm", pid)); }

// Whether a path is the same file for the process. It differs in another container or chroot.
bool sees_same_file(pid_t pid, const std::string& path) {
    struct stat file_here{}, file_there{};
    return stat(path.c_str(), &file_here) == 0 &&
           stat(fmt::format("/proc/{}/root{}", pid, path).c_str(), &file_there) == 0 &&
           file_here.st_dev == file_there.st_dev && file_here.st_ino == file_there.st_ino;
}

void throw_if_traced(pid_t pid) {
    const std::string field = status_field(fmt::format("/proc/{}/status", pid), "TracerPid");
    const auto tracer = static_cast<pid_t>(std::strtol(field.c_str(), nullptr, 10));
    if (tracer != 0 && tracer != getpid())
        throw Error(
            fmt::format("process {} is being traced by {} ({})", pid, tracer, read_name(tracer)),
            "detach that program, e.g. a debugger, first");
}

void check_process(pid_t pid) {
    const std::string file = fmt::format("/proc/{}/status", pid),
                      state = status_field(file, "State");
    if (pid <= 0 || state.empty())
        throw Error(fmt::format("there is no process {}", pid), "list the processes with ps -e");
    if (pid == getpid() || pid == getppid())
        throw Error(fmt::format("process {} is Assay itself", pid));
    if (const std::string group = status_field(file, "Tgid"); group != std::to_string(pid))
        throw Error(fmt::format("{} is a thread of process {}", pid, group),
                    fmt::format("attach to {}", group));
    if (state[0] == 'Z' || state[0] == 'X')
        throw Error(fmt::format("process {} has ended already", pid));
    if (status_field(file, "VmSize").empty())
        throw Error(fmt::format("process {} ({}) is a thread of the kernel", pid, read_name(pid)));
    throw_if_traced(pid);
}

// Checks that the process runs a program whose functions can be called.
void check_program(pid_t pid) {
#if !defined(__x86_64__)
    throw Error("a running process cannot be attached to on this processor",
                "start it with Assay: assay heap -- PROGRAM");
#endif
    std::ifstream program(fmt::format("/proc/{}/exe", pid), std::ios::binary);
    Elf64_Ehdr header{};
    if (!program.read(reinterpret_cast<char*>(&header), sizeof header))
        throw_attach_denied(pid, EACCES);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
        throw Error(fmt::format("process {} runs a program of another architecture", pid),
                    "only 64-bit x86 programs can be recorded");
    const std::vector<Mapping> files = mapped_files(pid);
    if (files.empty()) throw_attach_denied(pid, EACCES);
    if (std::ranges::none_of(files, is_libc, &Mapping::path))
        throw Error(
            fmt::format("process {} ({}) is statically linked, or has another C library than glibc",
                        pid, read_name(pid)),
            "only programs that use glibc as a shared library can be recorded");
}

// Checks that the process can load the library, and that nothing prevents calls into it.
void check_environment(pid_t pid, const std::string& library) {
    if (read_link(fmt::format("/proc/{}/ns/pid", pid)) != read_link("/proc/self/ns/pid"))
        throw Error(fmt::format("process {} is in another container", pid),
                    "run Assay in that container");
    if (!sees_same_file(pid, library))
        throw Error(fmt::format("process {} cannot see {}: it is in another container or root", pid,
                                library),
                    "run Assay in that container or root");
    const std::string file = fmt::format("/proc/{}/status", pid);
    const std::uint64_t ignored = std::strtoull(status_field(file, "SigIgn").c_str(), nullptr, 16);
    if ((ignored >> (SIGSEGV - 1) & 1) != 0)
        throw Error(
            fmt::format("process {} ignores SIGSEGV, the signal that ends a call into it", pid));
    if (status_field(file, "x86_Thread_features").find("shstk") != std::string::npos)
        throw Error(
            fmt::format("process {} has a shadow stack, which prevents calls from outside", pid),
            "start it with Assay: assay heap -- PROGRAM");
}

}  // namespace

bool is_libc(const std::string& path) {
    const std::string name = fs::path(path).filename();
    return name.starts_with("libc.so.6") || name.starts_with("libc-2.");
}

std::string status_field(const std::string& file, const std::string& name) {
    std::ifstream input(file);
    for (std::string line; std::getline(input, line);)
        if (line.starts_with(name + ":")) {
            const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
            return begin != std::string::npos ? line.substr(begin) : "";
        }
    return "";
}

std::vector<Mapping> mapped_files(pid_t pid) {
    std::vector<Mapping> mappings;
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
        Mapping mapping;
        std::istringstream fields(line);
        std::string permissions, device, inode;
        char dash = 0;
        fields >> std::hex >> mapping.begin >> dash >> mapping.end >> permissions >>
            mapping.offset >> device >> inode;
        std::getline(fields >> std::ws, mapping.path);
        if (mapping.path.starts_with('/')) mappings.push_back(mapping);
    }
    return mappings;
}

void check_attachable(pid_t pid, const std::string& library) {
    check_process(pid);
    check_program(pid);
    check_environment(pid, library);
}

void throw_attach_denied(pid_t pid, int error) {
    const std::string owner =
        status_field(fmt::format("/proc/{}/status", pid), "Uid").substr(0, 12);
    const auto uid = static_cast<uid_t>(std::strtoul(owner.c_str(), nullptr, 10));
    if (owner.empty()) throw Error(fmt::format("process {} has ended", pid));
    throw_if_traced(pid);
    if (geteuid() != 0 && uid != geteuid())
        throw Error(fmt::format("process {} belongs to another user", pid),
                    "become that user, or root");
    const std::string rule = procfs("sys/kernel/yama/ptrace_scope"), scope = read_line(rule);
    if (!scope.empty() && scope != "0")
        throw Error(
            fmt::format("the system does not let processes be attached to: {} is {}", rule, scope),
            "become root, or write 0 to that file");
    throw Error(fmt::format("process {} may not be attached to: {}", pid, std::strerror(error)),
                "the process or its container forbids it; in a container, add the capability "
                "SYS_PTRACE");
}

}  // namespace assay::attach
