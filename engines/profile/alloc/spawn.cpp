// Starts measured processes, waits for them and checks which library serves malloc.
#include "profile/alloc/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/interrupt.hpp"

extern char** environ;

namespace assay::alloc {
namespace {

constexpr int poll_ms = 100;  // between two checks for Ctrl-C and the time limit

[[noreturn]] void throw_errno(const char* call) {
    throw Error(fmt::format("{}: {}", call, std::strerror(errno)), "see 'ulimit -a'");
}

// The results, in memory that both processes map.
class ResultsMapping {
public:
    ResultsMapping() : fd_(memfd_create("assay-alloc", MFD_CLOEXEC)) {
        if (fd_ < 0 || ftruncate(fd_, sizeof(SharedResults)) != 0)
            throw_errno("cannot create memory shared with the measured process");
        void* memory =
            mmap(nullptr, sizeof(SharedResults), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (memory == MAP_FAILED)
            throw_errno("cannot map the memory shared with the measured process");
        results_ = static_cast<SharedResults*>(memory);
    }
    ~ResultsMapping() {
        munmap(results_, sizeof(SharedResults));
        close(fd_);
    }
    ResultsMapping(const ResultsMapping&) = delete;
    ResultsMapping& operator=(const ResultsMapping&) = delete;
    SharedResults& operator*() const { return *results_; }
    SharedResults* operator->() const { return results_; }
    int descriptor() const { return fd_; }

private:
    int fd_;
    SharedResults* results_ = nullptr;
};

// The environment with the allocator's settings, which replace those of the same name.
std::vector<std::string> make_environment(const Allocator& allocator) {
    std::vector<std::string> variables = allocator.settings;
    if (!allocator.library.empty()) variables.push_back("LD_PRELOAD=" + allocator.library);
    const std::size_t allocator_count = variables.size();
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string text = *variable, name = text.substr(0, text.find('=') + 1);
        bool is_replaced = name == "LD_PRELOAD=" || name == "GLIBC_TUNABLES=";
        for (std::size_t k = 0; k < allocator_count; ++k)
            is_replaced = is_replaced || variables[k].starts_with(name);
        if (!is_replaced) variables.push_back(text);
    }
    return variables;
}

// Runs in the child between fork and exec: moves the results to their descriptor, and makes the
// kernel kill the child when the parent ends.
void exec_measured_process(const Allocator& allocator, int results, int alive_fd, char* const* argv,
                           char* const* variables) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!allocator.huge_pages) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    // If the machine runs out of memory, the kernel kills this process first.
    const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && ::write(score, "1000", 4) != 4) close(score);
    fcntl(alive_fd, F_DUPFD, 10);  // stays open across exec until the process ends
    if (results == results_descriptor) fcntl(results, F_SETFD, 0);
    else dup2(results, results_descriptor);
    execve("/proc/self/exe", argv, variables);
    _exit(127);
}

struct Process {
    pid_t pid;
    int alive_fd;  // read end of a pipe: end of file when the process has ended
};

Process start(const Allocator& allocator, int results) {
    std::string name = "assay-alloc", command = "serve";
    char* argv[] = {name.data(), command.data(), nullptr};
    std::vector<std::string> environment_strings = make_environment(allocator);
    std::vector<char*> variables;
    variables.reserve(environment_strings.size() + 1);
    for (std::string& variable : environment_strings) variables.push_back(variable.data());
    variables.push_back(nullptr);
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
    const pid_t pid = fork();
    if (pid < 0) throw_errno("cannot start a process");
    if (pid == 0) exec_measured_process(allocator, results, pipe_fds[1], argv, variables.data());
    close(pipe_fds[1]);
    return {pid, pipe_fds[0]};
}

// Waits for the process, and kills it after the limit. Returns the reason of a failure; empty on
// success.
std::string wait_for_end(const Process& process, double limit_s) {
    const Nanoseconds deadline = now() + static_cast<Nanoseconds>(limit_s * 1e9);
    bool is_late = false;
    for (;;) {
        pollfd event{process.alive_fd, POLLIN, 0};
        if (poll(&event, 1, poll_ms) > 0) break;
        is_late = now() > deadline;
        if (is_late || interrupted()) {
            kill(process.pid, SIGKILL);
            break;
        }
    }
    close(process.alive_fd);
    int status = 0;
    while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (interrupted()) throw Error("interrupted");
    if (is_late) return fmt::format("it was not done within {:.0f} s", limit_s);
    if (WIFSIGNALED(status))
        return fmt::format("its process was killed by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0
               ? ""
               : fmt::format("its process ended with status {}", WEXITSTATUS(status));
}

// Throws Error unless the expected library serves malloc and the other functions: the allocator's
// library, or the C library if there is none.
void check_malloc_library(const Allocator& allocator, const SharedResults& results) {
    const std::string library = results.malloc_library, other_function = results.other_function;
    std::error_code ignored;
    const bool is_expected =
        allocator.library.empty()
            ? std::filesystem::path(library).filename().string().starts_with("libc.")
            : std::filesystem::equivalent(library, allocator.library, ignored);
    if (!is_expected)
        throw Error(
            fmt::format("{} does not serve malloc: {} does",
                        allocator.library.empty() ? "the C library" : allocator.library, library),
            "check that it is an allocator for this machine that replaces malloc");
    if (!other_function.empty())
        throw Error(fmt::format("{} serves malloc, but {} serves {}", library,
                                results.other_library, other_function),
                    "use an allocator that replaces all of these functions");
}

}  // namespace

void Samples::add(const SharedResults& results) {
    for (std::size_t s = 0; s < series_count; ++s) {
        const std::size_t count = std::min(results.counts[s].load(), max_samples);
        series_[s].insert(series_[s].end(), results.samples[s], results.samples[s] + count);
    }
    for (std::size_t k = 0; k < call_count; ++k) {
        const OrderStatistics& statistics = results.calls[k];
        calls_[k] = {statistics.n,   statistics.median, statistics.mad, statistics.min,
                     statistics.max, statistics.p5,     statistics.p95, statistics.p99};
    }
}

void Samples::merge(const Samples& other) {
    for (std::size_t s = 0; s < series_count; ++s)
        series_[s].insert(series_[s].end(), other.series_[s].begin(), other.series_[s].end());
    std::copy(std::begin(other.calls_), std::end(other.calls_), calls_);
}

std::string run_task(const Allocator& allocator, const Task& task, double limit_s,
                     Samples& samples) {
    const ResultsMapping results;
    results->task = task;
    std::string reason = wait_for_end(start(allocator, results.descriptor()), limit_s);
    if (results->malloc_library[0] != 0) check_malloc_library(allocator, *results);
    if (results->waived_reason[0] != 0) return results->waived_reason;
    if (reason.empty() && results->done == 0) reason = "its process ended early";
    if (reason.empty()) samples.add(*results);
    return reason;
}

std::string find_malloc_library(const Allocator& allocator, double limit_s) {
    const ResultsMapping results;
    const std::string reason = wait_for_end(start(allocator, results.descriptor()), limit_s);
    if (results->malloc_library[0] != 0) check_malloc_library(allocator, *results);
    if (!reason.empty() || results->done == 0)
        throw Error(fmt::format("a program on {} cannot start: {}",
                                allocator.library.empty() ? allocator.name : allocator.library,
                                reason.empty() ? "it ended early" : reason),
                    "check that it is an allocator for this machine");
    return results->malloc_library;
}

}  // namespace assay::alloc
