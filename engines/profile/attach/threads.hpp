// The threads of another process, stopped where they are and let go on as if nothing had been.
//
// They are seized (PTRACE_SEIZE) and interrupted, which sends them no signal. A signal that was
// about to be delivered is delivered when they are let go. System calls that wait are begun again
// by the kernel; those that it would end with EINTR, which a program may take for a signal of its
// own, are begun again here (call.hpp).
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/clock.hpp"

namespace assay::attach {

struct Thread {
    pid_t tid;
    bool is_stopped = false;
    int signal = 0;  // that it is about to get
};

class Threads {
public:
    explicit Threads(pid_t pid) : pid_(pid) {}
    ~Threads() { let_go(); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

    // As the system lists them, the first one first.
    static std::vector<pid_t> of(pid_t pid);

    // False when that has taken too long, or the thread has ended. Throws Error when it is not
    // allowed.
    bool stop(pid_t tid, Nanoseconds until);
    // All, also those that come while this goes on.
    bool stop_all(Nanoseconds until);
    void let_go();
    void let_go_but(pid_t tid);

    const std::vector<Thread>& stopped() const { return threads_; }
    std::vector<pid_t> ids() const;
    bool has(pid_t tid) const;

private:
    bool seize(pid_t tid);
    bool wait(Thread& thread, Nanoseconds until);
    bool wait_for_all(Nanoseconds until);

    pid_t pid_;
    std::vector<Thread> threads_;
};

}  // namespace assay::attach
