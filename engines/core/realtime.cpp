// Sets real-time priority (see realtime.hpp).
#include "core/realtime.hpp"

#include <sched.h>

#include <cerrno>
#include <cstring>

#include "core/error.hpp"

namespace assay {

void enter_realtime() {
    const sched_param lowest{.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &lowest) == 0) return;
    const int error = errno;
    throw Error(std::string("cannot set real-time priority: ") + std::strerror(error),
                error == EPERM
                    ? "run as root, raise the limit (ulimit -r 1), or leave --realtime out"
                    : "leave --realtime out");
}

}  // namespace assay
