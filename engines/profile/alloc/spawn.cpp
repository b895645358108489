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

constexpr int look_ms = 100;  // at an interruption

[[noreturn]] void fail(const char* what) {
    throw Error(fmt::format("{}: {}", what, std::strerror(errno)), "see 'ulimit -a'");
}

// The board in memory that both processes map.
class SharedBoard {
public:
    SharedBoard() : fd_(memfd_create("assay-alloc", MFD_CLOEXEC)) {
        if (fd_ < 0 || ftruncate(fd_, sizeof(Board)) != 0)
            fail("cannot make the memory shared with the measured process");
        void* at = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) fail("cannot map the memory shared with the measured process");
        board_ = static_cast<Board*>(at);
    }
    ~SharedBoard() {
        munmap(board_, sizeof(Board));
        close(fd_);
    }
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    Board& operator*() const { return *board_; }
    Board* operator->() const { return board_; }
    int descriptor() const { return fd_; }

private:
    int fd_;
    Board* board_ = nullptr;
};

// This environment with the allocator's in front of its own.
std::vector<std::string> environment(const Allocator& allocator) {
    std::vector<std::string> all = allocator.settings;
    if (!allocator.library.empty()) all.push_back("LD_PRELOAD=" + allocator.library);
    const std::size_t own = all.size();
    for (char** at = environ; *at != nullptr; ++at) {
        const std::string one = *at, name = one.substr(0, one.find('=') + 1);
        bool replaced = name == "LD_PRELOAD=" || name == "GLIBC_TUNABLES=";
        for (std::size_t k = 0; k < own; ++k) replaced = replaced || all[k].starts_with(name);
        if (!replaced) all.push_back(one);
    }
    return all;
}

// In the child, between fork and exec: the board where it is expected, and no life beyond this
// process's.
void become(const Allocator& allocator, int board, int alive, char* const* words,
            char* const* variables) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!allocator.huge_pages) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    // Should the machine run out of memory all the same: this one rather than any other.
    const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0 && ::write(score, "1000", 4) != 4) close(score);
    fcntl(alive, F_DUPFD, 10);  // stays open over exec: its end is this process's end
    if (board == board_descriptor) fcntl(board, F_SETFD, 0);
    else dup2(board, board_descriptor);
    execve("/proc/self/exe", words, variables);
    _exit(127);
}

struct Process {
    pid_t pid;
    int alive;  // end of file when it has ended
};

Process start(const Allocator& allocator, int board) {
    std::string name = "assay-alloc", verb = "serve";
    char* words[] = {name.data(), verb.data(), nullptr};
    std::vector<std::string> all = environment(allocator);
    std::vector<char*> variables;
    for (std::string& one : all) variables.push_back(one.data());
    variables.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe");
    const pid_t pid = fork();
    if (pid < 0) fail("cannot start a process");
    if (pid == 0) become(allocator, board, ends[1], words, variables.data());
    close(ends[1]);
    return {pid, ends[0]};
}

// How it ended, within its limit; it is gone in any case.
std::string ending(const Process& process, double limit_s) {
    const Nanoseconds until = now() + static_cast<Nanoseconds>(limit_s * 1e9);
    bool late = false;
    for (;;) {
        pollfd ended{process.alive, POLLIN, 0};
        if (poll(&ended, 1, look_ms) > 0) break;
        late = now() > until;
        if (late || interrupted()) {
            kill(process.pid, SIGKILL);
            break;
        }
    }
    close(process.alive);
    int status = 0;
    while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (interrupted()) throw Error("interrupted");
    if (late) return fmt::format("it was not done after {:.0f} s", limit_s);
    if (WIFSIGNALED(status))
        return fmt::format("its process was ended by signal {} ({})", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0
               ? ""
               : fmt::format("its process ended with status {}", WEXITSTATUS(status));
}

// Is malloc, and free with it, the wanted library's (or the C library's own, where none is wanted)?
void check_serving(const Allocator& allocator, const Board& board) {
    const std::string serving = board.serving, other = board.other_function;
    std::error_code unknown;
    const bool is_wanted =
        allocator.library.empty()
            ? std::filesystem::path(serving).filename().string().starts_with("libc.")
            : std::filesystem::equivalent(serving, allocator.library, unknown);
    if (!is_wanted)
        throw Error(
            fmt::format("{} does not serve malloc: {} does",
                        allocator.library.empty() ? "the C library" : allocator.library, serving),
            "is it an allocator for this machine, one that replaces malloc?");
    if (!other.empty())
        throw Error(
            fmt::format("{} serves malloc, but {} serves {}", serving, board.other_file, other),
            "an allocator has to replace all of them");
}

}  // namespace

void Samples::add(const Board& board) {
    for (std::size_t s = 0; s < series_count; ++s) {
        const std::size_t count = std::min(board.used[s].load(), series_room);
        series_[s].insert(series_[s].end(), board.samples[s], board.samples[s] + count);
    }
    for (std::size_t k = 0; k < call_count; ++k) {
        const Order& o = board.calls[k];
        calls_[k] = {o.n, o.median, o.mad, o.min, o.max, o.p5, o.p95, o.p99};
    }
}

void Samples::merge(const Samples& other) {
    for (std::size_t s = 0; s < series_count; ++s)
        series_[s].insert(series_[s].end(), other.series_[s].begin(), other.series_[s].end());
    std::copy(std::begin(other.calls_), std::end(other.calls_), calls_);
}

std::string work(const Allocator& allocator, const Task& task, double limit_s, Samples& into) {
    const SharedBoard board;
    board->task = task;
    std::string why = ending(start(allocator, board.descriptor()), limit_s);
    if (board->serving[0] != 0) check_serving(allocator, *board);
    if (board->refused[0] != 0) return board->refused;
    if (why.empty() && board->done == 0) why = "its process ended early";
    if (why.empty()) into.add(*board);
    return why;
}

std::string serving_file(const Allocator& allocator, double limit_s) {
    const SharedBoard board;
    const std::string why = ending(start(allocator, board.descriptor()), limit_s);
    if (board->serving[0] != 0) check_serving(allocator, *board);
    if (!why.empty() || board->done == 0)
        throw Error(fmt::format("a program on {} cannot even start: {}",
                                allocator.library.empty() ? allocator.name : allocator.library,
                                why.empty() ? "it ended early" : why),
                    "is it an allocator for this machine?");
    return board->serving;
}

}  // namespace assay::alloc
