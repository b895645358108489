// Interposes the functions that decide about NUMA placement: mbind(), set_mempolicy() (also
// libnuma's), thread affinity and the start of threads.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "profile/numa/hooks/tracker.hpp"

namespace assay::numa {
namespace {

// The first 64 nodes of a node mask. `count` is maxnode of mbind(2): the number of its bits plus 1.
std::uint64_t low_node_mask(const unsigned long* mask, unsigned long count) {
    if (mask == nullptr || count <= 1) return 0;
    const std::uint64_t nodes = *mask;
    return count - 1 >= 64 ? nodes : nodes & ((std::uint64_t{1} << (count - 1)) - 1);
}

// 128 processors. The recorder reads larger masks from /proc.
constexpr std::size_t max_mask_words = 2;

void report_affinity(int tid, std::size_t bytes, const cpu_set_t* processors) {
    if (in_hook != 0 || processors == nullptr) return;
    std::uint64_t mask_words[max_mask_words] = {};
    memcpy(mask_words, processors, bytes < sizeof mask_words ? bytes : sizeof mask_words);
    const int error = errno;
    ++in_hook;
    track_affinity(tid, mask_words[0], mask_words[1]);
    --in_hook;
    errno = error;
}

struct ThreadStart {
    void* (*run)(void*);
    void* argument;
};

void* run_thread(void* argument) {
    const ThreadStart start = *static_cast<ThreadStart*>(argument);
    ++in_hook;
    free(argument);
    track_thread_start();
    --in_hook;
    return start.run(start.argument);
}

}  // namespace
}  // namespace assay::numa

using namespace assay::numa;

#define ASSAY_HOOK extern "C" __attribute__((visibility("default"), noinline))

ASSAY_HOOK long mbind(void* address, unsigned long bytes, int mode, const unsigned long* mask,
                      unsigned long count, unsigned flags) {
    const long status = syscall(SYS_mbind, address, bytes, mode, mask, count, flags);
    if (status == 0 && in_hook == 0) {
        ++in_hook;
        track_policy(address, bytes, mode, low_node_mask(mask, count));
        --in_hook;
    }
    return status;
}

ASSAY_HOOK long set_mempolicy(int mode, const unsigned long* mask, unsigned long count) {
    const long status = syscall(SYS_set_mempolicy, mode, mask, count);
    if (status == 0 && in_hook == 0) {
        ++in_hook;
        track_thread_policy(mode, low_node_mask(mask, count));
        --in_hook;
    }
    return status;
}

ASSAY_HOOK int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
    using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static auto* real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
    ++in_hook;
    auto* start = static_cast<ThreadStart*>(malloc(sizeof(ThreadStart)));
    --in_hook;
    if (start == nullptr) return real(thread, attributes, run, argument);
    *start = {run, argument};
    const int status = real(thread, attributes, run_thread, start);
    if (status != 0) free(start);
    return status;
}

ASSAY_HOOK int sched_setaffinity(pid_t process, size_t bytes,
                                 const cpu_set_t* processors) noexcept {
    const long status = syscall(SYS_sched_setaffinity, process, bytes, processors);
    if (status == 0) report_affinity(process, bytes, processors);
    return static_cast<int>(status);
}

ASSAY_HOOK int pthread_setaffinity_np(pthread_t thread, size_t bytes,
                                      const cpu_set_t* processors) noexcept {
    using Set = int(pthread_t, size_t, const cpu_set_t*);
    static auto* real = reinterpret_cast<Set*>(dlsym(RTLD_NEXT, "pthread_setaffinity_np"));
    const int status = real(thread, bytes, processors);
    if (status == 0 && pthread_equal(thread, pthread_self()) != 0)
        report_affinity(0, bytes, processors);
    return status;
}
