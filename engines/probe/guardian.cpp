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

// Time for the last line to pass through the launcher before it ends the job.
constexpr useconds_t parting_us = 300'000;

// Waits for the child, passing on what the launcher sends; its status, and whether anything was
// passed on.
int await(pid_t child, const sigset_t& watched, bool& told_to_end) {
    for (;;) {
        const int caught = sigwaitinfo(&watched, nullptr);
        if (caught > 0 && caught != SIGCHLD) {
            told_to_end = true;
            kill(child, caught);
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
                    "raise the limit of processes (ulimit -u)");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // a launcher that kills the parent means both
        if (getppid() != guardian) _exit(1);
        sigprocmask(SIG_SETMASK, &before, nullptr);
        return;
    }
    bool told_to_end = false;
    const int status = await(child, watched, told_to_end);
    if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
    const int number = WTERMSIG(status);
    if (!told_to_end) {
        const std::string host = host_name();
        Sink().failure(fmt::format("rank {} on {} was ended by signal {} ({})", rank, host, number,
                                   strsignal(number)),
                       number == SIGKILL ? "was the host short of memory? see dmesg there"
                                         : "see the engine's last words",
                       {.host = host, .rank = rank}, number == SIGKILL);
        usleep(parting_us);
    }
    _exit(128 + number);
}

}  // namespace assay
