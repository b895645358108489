// Tests the profiler's stack unwinder on aarch64. Compares captured stacks with those of the
// compiler's unwinder (_Unwind_Backtrace; the build has no libunwind for aarch64): through frames
// of fixed and variable size, the C library, throw and longjmp, threads and signals.
//
// Prints "CAPTURES captures, WRONG wrong", and separately for captures in signal handlers. A
// capture in a handler is right if it has the frames of the handler and of the interrupted function
// and ends in the same outermost frame as main's stack.
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "profile/stack/unwinder.hpp"

using namespace assay::stack;

namespace {

constexpr unsigned max_frames = 512;

Tree tree;

struct Tally {
    unsigned long captures = 0, wrong = 0;
};
struct ThreadState {
    Unwinder* unwinder = nullptr;
    Tally tally;
    std::mt19937 random{42};
    std::jmp_buf jump_target;
};
thread_local ThreadState state;
struct {
    volatile unsigned long captures = 0, wrong = 0;
} signal_tally;
std::uint64_t main_root = 0;  // outermost address of main's stack
unsigned main_depth = 0;      // number of its frames, including main's

void register_thread() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* low = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    void* memory = mmap(nullptr, sizeof(Unwinder), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    state.unwinder = static_cast<Unwinder*>(memory);
    const auto begin = reinterpret_cast<std::uint64_t>(low);
    state.unwinder->set_bounds({begin, begin + bytes});
}

struct ExpectedStack {
    std::uint64_t pc[max_frames];
    unsigned n = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* into) {
    auto& expected = *static_cast<ExpectedStack*>(into);
    int before = 0;
    const std::uint64_t pc = _Unwind_GetIPInfo(context, &before);
    if (pc && expected.n < max_frames) expected.pc[expected.n++] = before ? pc : pc - 1;
    return _URC_NO_REASON;
}

struct CapturedStack {
    std::uint64_t pc[max_frames];
    unsigned n = 0;
    bool is_complete = false;

    explicit CapturedStack(StackId id) {
        for (; id > lost_root && n < max_frames; id = tree.node(id).parent)
            pc[n++] = tree.node(id).address;
        is_complete = id == complete_root;
    }
};

__attribute__((noinline)) void capture() {
    const Frame caller = ASSAY_CALLER();
    const CapturedStack captured(state.unwinder->capture(caller, tree));
    static thread_local ExpectedStack expected;
    expected.n = 0;
    _Unwind_Backtrace(add_frame, &expected);
    unsigned skip = 0;
    while (skip < expected.n && expected.pc[skip] != caller.pc - 1) ++skip;
    const unsigned n = expected.n - skip;
    const bool is_equal = captured.is_complete && captured.n == n &&
                          std::equal(captured.pc, captured.pc + n, expected.pc + skip);
    ++state.tally.captures;
    if (is_equal || ++state.tally.wrong > 3) return;
    for (unsigned k = 0; k < std::max(n, captured.n); ++k)
        std::fprintf(stderr, "  %lx %lx\n", k < captured.n ? captured.pc[k] : 0,
                     k < n ? expected.pc[skip + k] : 0);
}

void descend(int depth);

__attribute__((noinline)) void through_fixed_frame(int depth) {
    volatile char buffer[200];
    static_cast<void>(buffer);
    buffer[0] = 1;
    descend(depth - 1);
    buffer[1] = 2;
}
__attribute__((noinline)) void through_variable_frame(int depth) {
    auto* buffer = static_cast<volatile char*>(alloca(16 + state.random() % 500));
    buffer[0] = 1;
    descend(depth - 1);
    buffer[1] = 2;
}
__attribute__((noinline)) void through_large_frame(int depth) {
    volatile char buffer[70'000];
    static_cast<void>(buffer);
    buffer[0] = 1;
    descend(depth - 1);
    buffer[69'999] = 2;
}
__attribute__((noinline)) void through_library(int depth) {
    static thread_local int remaining;
    remaining = depth;
    int numbers[2] = {2, 1};
    std::qsort(numbers, 2, sizeof(int), [](const void* a, const void* b) {
        descend(remaining - 1);
        return *static_cast<const int*>(a) - *static_cast<const int*>(b);
    });
}
__attribute__((noinline)) void through_exception(int depth) {
    try {
        descend(depth - 1);
        throw std::runtime_error("back");
    } catch (const std::exception&) {
        capture();
    }
}
__attribute__((noinline)) void through_longjmp(int depth) {
    std::jmp_buf saved;
    std::memcpy(&saved, &state.jump_target, sizeof saved);
    if (!setjmp(state.jump_target)) {
        descend(depth - 1);
        std::longjmp(state.jump_target, 1);
    }
    std::memcpy(&state.jump_target, &saved, sizeof saved);
    capture();
}

void descend(int depth) {
    capture();
    if (depth <= 0) return;
    switch (state.random() % 6) {
        case 0: return through_fixed_frame(depth), capture();
        case 1: return through_variable_frame(depth), capture();
        case 2: return through_large_frame(depth), capture();
        case 3: return through_library(depth), capture();
        case 4: return through_exception(depth), capture();
        default: return through_longjmp(depth), capture();
    }
}

// A leaf function, whose return address stays in the link register.
__attribute__((noinline)) unsigned leaf_function(unsigned n) {
    unsigned sum = 0;
    for (unsigned k = 0; k < n; ++k) sum = sum * 31 + k;
    return sum;
}

// Expects the handler, the signal frame, and the interrupted function (leaf or main).
__attribute__((noinline)) void on_signal(int) {
    const CapturedStack captured(state.unwinder->capture(ASSAY_CALLER(), tree));
    signal_tally.wrong =
        signal_tally.wrong + !(captured.is_complete &&
                               (captured.n == main_depth + 1 || captured.n == main_depth + 2) &&
                               captured.pc[captured.n - 1] == main_root);
    signal_tally.captures = signal_tally.captures + 1;
}

// The signal trampoline, with call-frame information like the kernel's. That of qemu has none.
extern "C" void back_from_signal();
#if defined(__aarch64__)
asm(".text\n.cfi_startproc\n.cfi_signal_frame\nnop\n.globl back_from_signal\nback_from_signal:\n"
    "mov x8, #139\nsvc #0\n.cfi_endproc\n");
#endif

void* capture_in_thread(void*) {
    register_thread();
    for (int k = 0; k < 100; ++k) descend(12);
    return new Tally(state.tally);
}

}  // namespace

int main() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (!tree.reserve(std::size_t{1} << 22)) return 2;
    register_thread();
    for (int k = 0; k < 200; ++k) descend(12);
    pthread_t thread;
    void* result = nullptr;
    pthread_create(&thread, nullptr, capture_in_thread, nullptr);
    pthread_join(thread, &result);
    const Tally thread_tally = *static_cast<Tally*>(result);
    std::printf("%lu captures, %lu wrong\n", state.tally.captures + thread_tally.captures,
                state.tally.wrong + thread_tally.wrong);
    const CapturedStack main_stack(state.unwinder->capture(ASSAY_CALLER(), tree));
    main_root = main_stack.pc[main_stack.n - 1];
    main_depth = main_stack.n + 1;
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)();
        std::uint64_t mask;
    } action{on_signal, SA_RESTART | 0x04000000 /* SA_RESTORER */, back_from_signal, 0};
    if (syscall(SYS_rt_sigaction, SIGALRM, &action, nullptr, sizeof action.mask)) return 2;
    volatile unsigned sum = 0;
    for (unsigned long k = 0; k < 200; ++k) {
        const itimerval one_shot{{0, 0}, {0, 1000}};
        setitimer(ITIMER_REAL, &one_shot, nullptr);
        while (signal_tally.captures == k) sum = sum + leaf_function(2000);
    }
    std::printf("%lu captures in signal handlers, %lu wrong\n", signal_tally.captures,
                signal_tally.wrong);
    return 0;
}
