// Forks the measuring process and reports the signal that ends it (see guardian.hpp).
#include "probe/guardian.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "core/error.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"

namespace assay {
namespace {

// Time for the failure record to pass through the launcher before the launcher ends the job.
constexpr useconds_t record_delay_us = 300'000;

// Waits for the child and forwards signals to it. Returns its status, and sets `signal_forwarded`
// if there were any.
int wait_for_child(pid_t child, const sigset_t& watched, bool& signal_forwarded) {
    for (;;) {
        const int signal = sigwaitinfo(&watched, nullptr);
        if (signal > 0 && signal != SIGCHLD) {
            signal_forwarded = true;
            kill(child, signal);
        }
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) return status;
    }
}

}  // namespace

void split_off_guardian(int rank) {
    sigset_t watched, before;
    sigemptyset(&watched);
    for (int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched, number);
    sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t guardian = getpid();
    const pid_t child = fork();
    if (child < 0)
        throw Error("cannot fork: " + std::string(std::strerror(errno)),
                    "raise the limit on processes (ulimit -u)");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // the child dies with its parent
        if (getppid() != guardian) _exit(1);
        sigprocmask(SIG_SETMASK, &before, nullptr);
        return;
    }
    bool signal_forwarded = false;
    const int status = wait_for_child(child, watched, signal_forwarded);
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    const int number = WTERMSIG(status);
    if (!signal_forwarded) {
        const std::string host = host_name();
        Sink().failure(fmt::format("rank {} on {} was ended by signal {} ({})", rank, host, number,
                                   strsignal(number)),
                       number == SIGKILL ? "check in dmesg whether that host was out of memory"
                                         : "see the last messages of the engine",
                       {.host = host, .rank = rank}, number == SIGKILL);
        usleep(record_delay_us);
    }
    _exit(128 + number);
}

}  // namespace assay
