// Compares captured stacks with the compiler's own unwinder (_Unwind_Backtrace), since libunwind is
// not available for aarch64 here: through fixed and variable frames, the C library, throw and
// longjmp, threads and signals.
//
// Prints "CAPTURES captures, WRONG wrong", and separately for captures in signal handlers. Those
// are right if they pass the signal frame and the interrupted function and end where main's stack
// does.
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

constexpr unsigned most = 512;

Tree tree;

struct Tally {
    unsigned long captures = 0, wrong = 0;
};
struct Own {  // of a thread
    Unwinder* unwinder = nullptr;
    Tally tally;
    std::mt19937 random{42};
    std::jmp_buf out;
};
thread_local Own own;
struct {
    volatile unsigned long captures = 0, wrong = 0;
} interrupted;
std::uint64_t outermost = 0;  // of main's stack
unsigned usual = 0;           // its frames, main's own among them

void attach() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* low = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    void* at = mmap(nullptr, sizeof(Unwinder), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    own.unwinder = static_cast<Unwinder*>(at);
    const auto begin = reinterpret_cast<std::uint64_t>(low);
    own.unwinder->set_bounds({begin, begin + bytes});
}

struct Theirs {
    std::uint64_t pc[most];
    unsigned n = 0;
};

_Unwind_Reason_Code one(_Unwind_Context* context, void* into) {
    auto& theirs = *static_cast<Theirs*>(into);
    int before = 0;
    const std::uint64_t pc = _Unwind_GetIPInfo(context, &before);
    if (pc && theirs.n < most) theirs.pc[theirs.n++] = before ? pc : pc - 1;
    return _URC_NO_REASON;
}

struct Ours {
    std::uint64_t pc[most];
    unsigned n = 0;
    bool whole = false;

    explicit Ours(StackId at) {
        for (; at > lost_root && n < most; at = tree.node(at).parent)
            pc[n++] = tree.node(at).address;
        whole = at == complete_root;
    }
};

__attribute__((noinline)) void capture() {
    const Frame caller = ASSAY_CALLER();
    const Ours ours(own.unwinder->capture(caller, tree));
    static thread_local Theirs theirs;
    theirs.n = 0;
    _Unwind_Backtrace(one, &theirs);
    unsigned skip = 0;
    while (skip < theirs.n && theirs.pc[skip] != caller.pc - 1) ++skip;
    const unsigned n = theirs.n - skip;
    const bool same =
        ours.whole && ours.n == n && std::equal(ours.pc, ours.pc + n, theirs.pc + skip);
    ++own.tally.captures;
    if (same || ++own.tally.wrong > 3) return;
    for (unsigned k = 0; k < std::max(n, ours.n); ++k)
        std::fprintf(stderr, "  %lx %lx\n", k < ours.n ? ours.pc[k] : 0,
                     k < n ? theirs.pc[skip + k] : 0);
}

void go(int depth);

__attribute__((noinline)) void fixed(int depth) {
    volatile char room[200];
    static_cast<void>(room);
    room[0] = 1;
    go(depth - 1);
    room[1] = 2;
}
__attribute__((noinline)) void variable(int depth) {
    auto* room = static_cast<volatile char*>(alloca(16 + own.random() % 500));
    room[0] = 1;
    go(depth - 1);
    room[1] = 2;
}
__attribute__((noinline)) void large(int depth) {
    volatile char room[70'000];
    static_cast<void>(room);
    room[0] = 1;
    go(depth - 1);
    room[69'999] = 2;
}
__attribute__((noinline)) void through_library(int depth) {
    static thread_local int left;
    left = depth;
    int numbers[2] = {2, 1};
    std::qsort(numbers, 2, sizeof(int), [](const void* a, const void* b) {
        go(left - 1);
        return *static_cast<const int*>(a) - *static_cast<const int*>(b);
    });
}
__attribute__((noinline)) void thrown(int depth) {
    try {
        go(depth - 1);
        throw std::runtime_error("back");
    } catch (const std::exception&) {
        capture();
    }
}
__attribute__((noinline)) void jumped(int depth) {
    std::jmp_buf mine;
    std::memcpy(&mine, &own.out, sizeof mine);
    if (!setjmp(own.out)) {
        go(depth - 1);
        std::longjmp(own.out, 1);
    }
    std::memcpy(&own.out, &mine, sizeof mine);
    capture();
}

void go(int depth) {
    capture();
    if (depth <= 0) return;
    switch (own.random() % 6) {
        case 0: return fixed(depth), capture();
        case 1: return variable(depth), capture();
        case 2: return large(depth), capture();
        case 3: return through_library(depth), capture();
        case 4: return thrown(depth), capture();
        default: return jumped(depth), capture();
    }
}

// A leaf function, whose return address stays in the link register.
__attribute__((noinline)) unsigned leaf(unsigned n) {
    unsigned sum = 0;
    for (unsigned k = 0; k < n; ++k) sum = sum * 31 + k;
    return sum;
}

// Expects the handler, the signal frame, and the interrupted function (leaf or main).
__attribute__((noinline)) void on_signal(int) {
    const Ours ours(own.unwinder->capture(ASSAY_CALLER(), tree));
    interrupted.wrong =
        interrupted.wrong + !(ours.whole && (ours.n == usual + 1 || ours.n == usual + 2) &&
                              ours.pc[ours.n - 1] == outermost);
    interrupted.captures = interrupted.captures + 1;
}

// The signal trampoline, with call-frame information as the kernel's has; qemu's has none.
extern "C" void back_from_signal();
#if defined(__aarch64__)
asm(".text\n.cfi_startproc\n.cfi_signal_frame\nnop\n.globl back_from_signal\nback_from_signal:\n"
    "mov x8, #139\nsvc #0\n.cfi_endproc\n");
#endif

void* in_thread(void*) {
    attach();
    for (int k = 0; k < 100; ++k) go(12);
    return new Tally(own.tally);
}

}  // namespace

int main() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    if (!tree.reserve(std::size_t{1} << 22)) return 2;
    attach();
    for (int k = 0; k < 200; ++k) go(12);
    pthread_t thread;
    void* result = nullptr;
    pthread_create(&thread, nullptr, in_thread, nullptr);
    pthread_join(thread, &result);
    const Tally theirs = *static_cast<Tally*>(result);
    std::printf("%lu captures, %lu wrong\n", own.tally.captures + theirs.captures,
                own.tally.wrong + theirs.wrong);
    const Ours here(own.unwinder->capture(ASSAY_CALLER(), tree));
    outermost = here.pc[here.n - 1];
    usual = here.n + 1;
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)();
        std::uint64_t mask;
    } action{on_signal, SA_RESTART | 0x04000000 /* SA_RESTORER */, back_from_signal, 0};
    if (syscall(SYS_rt_sigaction, SIGALRM, &action, nullptr, sizeof action.mask)) return 2;
    volatile unsigned sum = 0;
    for (unsigned long k = 0; k < 200; ++k) {
        const itimerval soon{{0, 0}, {0, 1000}};
        setitimer(ITIMER_REAL, &soon, nullptr);
        while (interrupted.captures == k) sum = sum + leaf(2000);
    }
    std::printf("%lu captures in signal handlers, %lu wrong\n", interrupted.captures,
                interrupted.wrong);
    return 0;
}
