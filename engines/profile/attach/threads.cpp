#include "profile/attach/threads.hpp"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/error.hpp"
#include "profile/attach/call.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {
namespace {

constexpr auto nap = std::chrono::microseconds(20);
constexpr Nanoseconds stop_limit = 100'000'000;

}  // namespace

std::vector<pid_t> Threads::of(pid_t pid) {
    std::vector<pid_t> found;
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), none))
        found.push_back(std::atoi(entry.path().filename().c_str()));
    std::ranges::sort(found, {}, [pid](pid_t tid) { return std::pair(tid != pid, tid); });
    return found;
}

std::vector<pid_t> Threads::ids() const {
    std::vector<pid_t> found;
    for (const Thread& one : threads_) found.push_back(one.tid);
    return found;
}

bool Threads::has(pid_t tid) const {
    return std::ranges::find(threads_, tid, &Thread::tid) != threads_.end();
}

// False when there is no such thread any more.
bool Threads::seize(pid_t tid) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
        const int error = errno;
        // One that has ended and is still listed may not be seized either.
        const std::string state =
            field_of(fmt::format("/proc/{}/task/{}/status", pid_, tid), "State");
        if (error == ESRCH || state.empty() || state[0] == 'Z' || state[0] == 'X') return false;
        throw_not_allowed(pid_, error);
    }
    threads_.push_back({tid});
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    return true;
}

bool Threads::wait(Thread& thread, Nanoseconds until) {
    while (!thread.is_stopped) {
        int status = 0;
        const pid_t told = waitpid(thread.tid, &status, __WALL | WNOHANG);
        if (told == thread.tid && WIFSTOPPED(status)) {
            thread.is_stopped = true;
            if (status >> 16 != PTRACE_EVENT_STOP) thread.signal = WSTOPSIG(status);
        } else if (told != 0) {
            return false;  // it has ended
        } else if (now() > until) {
            return false;
        } else {
            std::this_thread::sleep_for(nap);
        }
    }
    return true;
}

bool Threads::stop(pid_t tid, Nanoseconds until) { return seize(tid) && wait_for_all(until); }

// Those that end meanwhile are no more of them.
bool Threads::wait_for_all(Nanoseconds until) {
    std::erase_if(threads_, [&](Thread& thread) { return !wait(thread, until) && now() <= until; });
    return !threads_.empty() && std::ranges::all_of(threads_, &Thread::is_stopped);
}

bool Threads::stop_all(Nanoseconds until) {
    for (bool any = true; any;) {
        any = false;
        for (const pid_t tid : of(pid_))
            if (!has(tid)) any |= seize(tid);
        if (!wait_for_all(until)) return false;
    }
    return true;
}

void Threads::let_go() { let_go_but(0); }

// Only one that is stopped can be let go: one that waits for a device stays on the list until it
// has stopped.
void Threads::let_go_but(pid_t tid) {
    std::erase_if(threads_, [&](Thread& one) {
        if (one.tid == tid || (!one.is_stopped && !wait(one, now() + stop_limit))) return false;
        if (one.signal == 0) begin_wait_again(pid_, one.tid);
        ptrace(PTRACE_DETACH, one.tid, nullptr, static_cast<long>(one.signal));
        return true;
    });
}

}  // namespace assay::attach
