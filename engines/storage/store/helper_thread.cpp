// Starts a thread and widens its CPU affinity to the whole cpuset of the process.
#include "storage/store/helper_thread.hpp"

#include <sched.h>

#include <cstddef>

namespace assay::storage {
namespace {

constexpr int max_processors = 8192;  // the most that Linux supports on x86-64

}  // namespace

// The kernel restricts the affinity to the cpuset. If the affinity cannot be set, the thread is
// only slower, so errors are ignored.
bool start_helper_thread(pthread_t& thread, void* (*body)(void*), void* argument) {
    if (pthread_create(&thread, nullptr, body, argument) != 0) return false;
    if (cpu_set_t* all = CPU_ALLOC(max_processors)) {
        const std::size_t bytes = CPU_ALLOC_SIZE(max_processors);
        CPU_ZERO_S(bytes, all);
        for (int processor = 0; processor < max_processors; ++processor)
            CPU_SET_S(processor, bytes, all);
        pthread_setaffinity_np(thread, bytes, all);
        CPU_FREE(all);
    }
    return true;
}

}  // namespace assay::storage
