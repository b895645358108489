// Captures call stacks inside the profiled program, with an unwinder per thread.
#include "profile/numa/hooks/capture.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "profile/numa/hooks/tracker.hpp"
#include "profile/stack/unwinder.hpp"

namespace assay::numa {

stack::Tree stacks;

namespace {

constinit thread_local stack::Unwinder* unwinder __attribute__((tls_model("initial-exec"))) =
    nullptr;
constinit thread_local stack::Bounds bounds __attribute__((tls_model("initial-exec"))) = {};

pthread_key_t key;
pthread_once_t key_once = PTHREAD_ONCE_INIT;

void unmap_unwinder(void* memory) {
    unwinder = nullptr;
    syscall(SYS_munmap, memory, sizeof(stack::Unwinder));
}

void make_key() { pthread_key_create(&key, unmap_unwinder); }

}  // namespace

void* map_zeroed(std::size_t bytes) {
    const long address = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    return address == -1 ? nullptr : reinterpret_cast<void*>(address);
}

stack::Bounds stack_bounds() {
    if (bounds.high != 0) return bounds;
    pthread_attr_t attributes;
    void* low = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
    pthread_attr_getstack(&attributes, &low, &size);
    pthread_attr_destroy(&attributes);
    const auto begin = reinterpret_cast<std::uint64_t>(low);
    return bounds = {begin, begin + size};
}

stack::StackId capture(const stack::Frame& caller) {
    if (unwinder == nullptr) {
        unwinder = static_cast<stack::Unwinder*>(map_zeroed(sizeof(stack::Unwinder)));
        if (unwinder == nullptr) return stack::no_stack;
        exclude_profiler_memory(unwinder, sizeof(stack::Unwinder));
        pthread_once(&key_once, make_key);
        pthread_setspecific(key, unwinder);
        unwinder->set_bounds(stack_bounds());
    }
    return unwinder->capture(caller, stacks);
}

}  // namespace assay::numa
