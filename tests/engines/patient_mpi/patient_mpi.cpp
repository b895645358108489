// Makes MPICH wait without spinning, for tests that start more ranks than there are processors.
//
// MPICH (device ch4:ucx) polls UCX without pause while it waits for a message. With three ranks on
// two processors, the sending rank gets no processor until the scheduler preempts another
// (milliseconds), and a test of some thousand messages takes a minute. Loaded with LD_PRELOAD, this
// library yields the processor after each idle poll, and sleeps after 64 idle polls in a row: the
// longer it has waited, the longer, up to a millisecond. MPI's behaviour is otherwise unchanged.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace {

constexpr unsigned yield_limit = 64;  // idle polls in a row that only yield the processor
// Sleep after each further idle poll, to which the timer's slack adds about 50 us.
constexpr unsigned first_pause_us = 20, last_pause_us = 1000;

}  // namespace

extern "C" unsigned ucp_worker_progress(void* worker) {
    static const auto real =
        reinterpret_cast<unsigned (*)(void*)>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
    thread_local unsigned idle_polls = 0;
    const unsigned events = real(worker);
    if (events > 0) idle_polls = 0;
    else if (++idle_polls < yield_limit) sched_yield();
    else usleep(std::min(first_pause_us + (idle_polls - yield_limit) * 2, last_pause_us));
    return events;
}
