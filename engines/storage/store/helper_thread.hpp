// Threads beside the program's own: the drain, the prefault and the service.
#pragma once

#include <pthread.h>

namespace assay::storage {

// Starts a thread that may run on every processor of the process's cpuset. Without this it would
// share the one processor that the launcher has bound the rank to. False: there is no thread.
bool start_helper_thread(pthread_t& thread, void* (*body)(void*), void* argument);

}  // namespace assay::storage
