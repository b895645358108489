// Stops the threads of another process, and releases them without side effects on the process.
//
// Threads are seized (PTRACE_SEIZE) and interrupted, which sends them no signal. A signal that was
// about to be delivered is delivered on release. The kernel restarts most interrupted system calls;
// those that it ends with EINTR, which a program may take for a signal, are restarted here
// (remote_call.hpp).
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/clock.hpp"

namespace assay::attach {

struct Thread {
    pid_t tid;
    bool is_stopped = false;
    int signal = 0;  // signal to deliver on release; 0: none
    // A signal such as SIGSTOP had stopped it already, and keeps it stopped after its release.
    bool was_stopped = false;
};

class Threads {
public:
    explicit Threads(pid_t pid) : pid_(pid) {}
    ~Threads() { release_all(); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    // The ids of a process's threads, the main thread first.
    static std::vector<pid_t> list(pid_t pid);

    // Stops a thread, and those that had not stopped by an earlier deadline. Returns false if it
    // has ended or one of them has not stopped by `deadline`. Throws Error if tracing is not
    // allowed.
    bool stop(pid_t tid, Nanoseconds deadline);
    // Stops all threads, including those that are created meanwhile.
    bool stop_all(Nanoseconds deadline);
    void release_all();
    void release_all_but(pid_t tid);

    const std::vector<Thread>& stopped() const { return threads_; }
    std::vector<pid_t> ids() const;
    bool has(pid_t tid) const;

private:
    bool seize(pid_t tid);
    bool wait_for_stop(Thread& thread, Nanoseconds deadline);
    bool wait_for_all(Nanoseconds deadline);

    pid_t pid_;
    std::vector<Thread> threads_;
};

}  // namespace assay::attach
