// The threads that the accelerator starts in the user's program: the drain, the prefault thread of
// the writer, and the service for other nodes.
#pragma once

#include <pthread.h>

namespace assay::storage {

// Starts a thread that may run on every processor of the process's cpuset. Without this it would
// share the one processor that the launcher has bound the rank to. Returns false if the thread
// cannot be created.
bool start_helper_thread(pthread_t& thread, void* (*body)(void*), void* argument);

}  // namespace assay::storage
