// Stops and releases threads with PTRACE_SEIZE and PTRACE_INTERRUPT.
#include "profile/attach/threads.hpp"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "core/error.hpp"
#include "profile/attach/remote_call.hpp"
#include "profile/attach/status.hpp"

namespace assay::attach {
namespace {

constexpr auto stop_poll_pause = std::chrono::microseconds(20);
constexpr Nanoseconds thread_stop_limit = 100'000'000;

}  // namespace

std::vector<pid_t> Threads::list(pid_t pid) {
    std::vector<pid_t> tids;
    std::error_code ignored;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored))
        tids.push_back(
            static_cast<pid_t>(std::strtol(entry.path().filename().c_str(), nullptr, 10)));
    std::ranges::sort(tids, {}, [pid](pid_t tid) { return std::pair(tid != pid, tid); });
    return tids;
}

std::vector<pid_t> Threads::ids() const {
    std::vector<pid_t> tids;
    tids.reserve(threads_.size());
    for (const Thread& thread : threads_) tids.push_back(thread.tid);
    return tids;
}

bool Threads::has(pid_t tid) const {
    return std::ranges::find(threads_, tid, &Thread::tid) != threads_.end();
}

// Attaches to a thread and interrupts it. Returns false if the thread has ended.
bool Threads::seize(pid_t tid) {
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
        const int error = errno;
        // A zombie thread is still listed but cannot be seized.
        const std::string state =
            status_field(fmt::format("/proc/{}/task/{}/status", pid_, tid), "State");
        if (error == ESRCH || state.empty() || state[0] == 'Z' || state[0] == 'X') return false;
        throw_attach_denied(pid_, error);
    }
    threads_.push_back({tid});
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    return true;
}

bool Threads::wait_for_stop(Thread& thread, Nanoseconds deadline) {
    while (!thread.is_stopped) {
        int status = 0;
        const pid_t waited_tid = waitpid(thread.tid, &status, __WALL | WNOHANG);
        if (waited_tid == thread.tid && WIFSTOPPED(status)) {
            thread.is_stopped = true;
            // PTRACE_EVENT_STOP comes with SIGTRAP, or with the signal that stops the process.
            if (status >> 16 != PTRACE_EVENT_STOP) thread.signal = WSTOPSIG(status);
            else thread.was_stopped = WSTOPSIG(status) != SIGTRAP;
        } else if (waited_tid != 0) {
            return false;  // the thread has ended
        } else if (now() > deadline) {
            return false;
        } else {
            std::this_thread::sleep_for(stop_poll_pause);
        }
    }
    return true;
}

bool Threads::stop(pid_t tid, Nanoseconds deadline) {
    return (has(tid) || seize(tid)) && wait_for_all(deadline) && has(tid);
}

// Waits until all threads have stopped. Threads that end meanwhile are removed from the list.
bool Threads::wait_for_all(Nanoseconds deadline) {
    std::erase_if(threads_, [&](Thread& thread) {
        return !wait_for_stop(thread, deadline) && now() <= deadline;
    });
    return !threads_.empty() && std::ranges::all_of(threads_, &Thread::is_stopped);
}

bool Threads::stop_all(Nanoseconds deadline) {
    for (bool has_new_threads = true; has_new_threads;) {
        has_new_threads = false;
        for (const pid_t tid : list(pid_))
            if (!has(tid)) has_new_threads |= seize(tid);
        if (!wait_for_all(deadline)) return false;
    }
    return true;
}

void Threads::release_all() { release_all_but(0); }

// Releases all threads but `tid`. Only a stopped thread can be released: a thread that waits for a
// device stays in the list until it has stopped.
void Threads::release_all_but(pid_t tid) {
    std::erase_if(threads_, [&](Thread& thread) {
        if (thread.tid == tid ||
            (!thread.is_stopped && !wait_for_stop(thread, now() + thread_stop_limit)))
            return false;
        if (thread.signal == 0) restart_interrupted_wait(pid_, thread.tid);
        ptrace(PTRACE_DETACH, thread.tid, nullptr, static_cast<long>(thread.signal));
        return true;
    });
}

}  // namespace assay::attach
