// Compares every captured stack with libunwind's, through all kinds of frames: fixed, variable
// (alloca), realigned, of the C library, signal frames, and after throw and longjmp.
#define UNW_LOCAL_ONLY
#include "profile/stack/unwinder.hpp"

#include <alloca.h>
#include <doctest/doctest.h>
#include <libunwind.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdlib>
#include <new>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "profile/stack/code.hpp"
#include "sanitized.hpp"

using namespace assay::stack;

namespace {

Tree& tree() {
    static Tree tree;
    static const bool reserved = tree.reserve(std::size_t{1} << 24);
    return reserved ? tree : throw std::bad_alloc();
}

Bounds stack_bounds() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* low = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    return {reinterpret_cast<std::uint64_t>(low), reinterpret_cast<std::uint64_t>(low) + bytes};
}

// In zeroed memory, as in the profiler.
Unwinder& unwinder() {
    thread_local Unwinder* unwinder = [] {
        void* memory = mmap(nullptr, sizeof(Unwinder), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        auto* mapped = static_cast<Unwinder*>(memory);
        mapped->set_bounds(stack_bounds());
        return mapped;
    }();
    return *unwinder;
}

struct Tally {
    std::uint64_t captures = 0, wrong = 0, frames = 0, deepest = 0;
} thread_local tally;

// The addresses of a stack, innermost first.
unsigned path(StackId id, std::uint64_t* addresses, unsigned limit, StackId& root) {
    unsigned n = 0;
    for (; id > lost_root && n < limit; id = tree().node(id).parent)
        addresses[n++] = tree().node(id).address;
    root = id;
    return n;
}

constexpr unsigned max_frames = 2000;
StackId expected_root = complete_root;

// Compares the captured stack of this function's caller with libunwind's.
__attribute__((noinline)) void capture() {
    const Frame caller = ASSAY_CALLER();
    const StackId id = unwinder().capture(caller, tree());
    static thread_local std::uint64_t captured[max_frames];
    static thread_local void* expected[max_frames];
    StackId root = no_stack;
    const unsigned n = path(id, captured, max_frames, root);
    int m = unw_backtrace(expected, max_frames);
    // libunwind begins in this function.
    int skip = 0;
    while (skip < m && reinterpret_cast<std::uint64_t>(expected[skip]) != caller.pc) ++skip;
    m -= skip;
    bool same = root == expected_root && m > 0 && static_cast<unsigned>(m) == n;
    for (unsigned k = 0; same && k < n; ++k) {
        const auto pc = reinterpret_cast<std::uint64_t>(expected[static_cast<unsigned>(skip) + k]);
        // Equal for a frame that a signal interrupted; else libunwind has the return address.
        same = captured[k] == pc - 1 || captured[k] == pc;
    }
    ++tally.captures;
    tally.frames += n;
    tally.deepest = std::max<std::uint64_t>(tally.deepest, n);
    if (!same && tally.wrong++ == 0) {
        std::string listing;
        for (unsigned k = 0; k < std::max(n, static_cast<unsigned>(m)) && k < 40; ++k) {
            char line[80];
            snprintf(
                line, sizeof line, "%2u %16lx %16p\n", k, k < n ? captured[k] : 0,
                k < static_cast<unsigned>(m) ? expected[static_cast<unsigned>(skip) + k] : nullptr);
            listing += line;
        }
        MESSAGE("first difference (ours, libunwind's):\n" << listing << "root " << root);
    }
}

using Random = std::minstd_rand;
void descend(Random& random, int depth);

__attribute__((noinline)) void fixed(Random& random, int depth) {
    volatile char buffer[40];
    buffer[0] = 1;
    descend(random, depth);
    buffer[1] = buffer[0];
}

__attribute__((noinline)) void variable(Random& random, int depth) {
    auto* buffer = static_cast<volatile char*>(alloca(16 + random() % 512));
    buffer[0] = 1;
    descend(random, depth);
    buffer[1] = buffer[0];
}

__attribute__((noinline)) void realigned(Random& random, int depth) {
    alignas(128) volatile char buffer[256];
    buffer[0] = 1;
    descend(random, depth);
    buffer[1] = buffer[0];
}

__attribute__((noinline)) void realigned_variable(Random& random, int depth) {
    alignas(64) volatile char buffer[64];
    auto* dynamic = static_cast<volatile char*>(alloca(16 + random() % 128));
    buffer[0] = 1;
    dynamic[0] = 1;
    descend(random, depth);
    buffer[1] = dynamic[0];
}

struct CallbackArguments {
    Random* random;
    int depth;
    bool is_called;
} thread_local callback_arguments;

int compare(const void*, const void*) {
    if (!callback_arguments.is_called) {
        callback_arguments.is_called = true;
        const CallbackArguments saved = callback_arguments;
        descend(*saved.random, saved.depth);
        callback_arguments = saved;
    }
    return 0;
}

__attribute__((noinline)) void through_libc(Random& random, int depth) {
    int numbers[4] = {3, 1, 2, 0};
    const CallbackArguments saved = callback_arguments;
    callback_arguments = {&random, depth, false};
    qsort(numbers, 4, sizeof numbers[0], compare);
    callback_arguments = saved;
}

__attribute__((noinline)) void thrower(Random& random, int depth) {
    try {
        descend(random, depth);
        capture();
        throw std::runtime_error("planted");
    } catch (const std::runtime_error&) {
        capture();
    }
}

__attribute__((noinline)) void jumper(Random& random, int depth) {
    jmp_buf target;
    if (setjmp(target) == 0) {
        fixed(random, depth);
        longjmp(target, 1);
    }
    capture();
}

thread_local Random* in_handler = nullptr;
void handler(int) {
    capture();
    if (in_handler != nullptr) descend(*in_handler, 3);
}

__attribute__((noinline)) void signalled(Random& random, int depth) {
    Random handler_random(static_cast<unsigned>(random()));
    Random* saved = in_handler;
    in_handler = &handler_random;
    raise(SIGUSR1);
    in_handler = saved;
    descend(random, depth);
}

void descend(Random& random, int depth) {
    if (depth <= 0) {
        capture();
        return;
    }
    using Kind = void (*)(Random&, int);
    static constexpr Kind kinds[] = {fixed, variable,     realigned, realigned_variable,
                                     fixed, through_libc, thrower,   jumper,
                                     fixed, variable};
    const unsigned choice = static_cast<unsigned>(random()) % 400;
    if (choice == 0) signalled(random, depth - 1);
    else kinds[choice % (choice < 20 ? 10 : 5)](random, depth - 1);
    if (random() % 4 == 0) capture();
}

constexpr unsigned path_count = 400;

void run(unsigned seed, std::uint64_t captures) {
    tally = {};
    // As in programs, the same stacks recur many times, in changing order.
    Random order(seed);
    while (tally.captures < captures) {
        Random path_random(seed * 1000 + static_cast<unsigned>(order()) % path_count);
        descend(path_random, 4 + static_cast<int>(path_random() % 24));
    }
}

}  // namespace

TEST_CASE("ten million captures agree with libunwind, frame by frame" *
          doctest::test_suite("slow")) {
    std::signal(SIGUSR1, handler);
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_PER_THREAD);
    std::vector<Tally> tallies(2);
    std::vector<std::uint64_t> walks(2);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 2; ++t)
        threads.emplace_back([&, t] {
            run(t + 1, 5'000'000);
            tallies[t] = tally;
            tallies[t].frames /= tally.captures;
            walks[t] = unwinder().counts().walks;
        });
    for (std::thread& thread : threads) thread.join();
    for (unsigned t = 0; t < 2; ++t) {
        const Tally& thread_tally = tallies[t];
        CHECK(walks[t] < thread_tally.captures / 2);  // most captures hit the memo
        CHECK(thread_tally.captures >= 5'000'000);
        CHECK(thread_tally.wrong == 0);
        CHECK(thread_tally.deepest > 28);  // more than an entry of the memo holds
        MESSAGE("mean depth " << thread_tally.frames << ", deepest " << thread_tally.deepest
                              << ", walks " << walks[t]);
    }
}

namespace {

__attribute__((noinline)) void recurse(int depth) {
    volatile int local = depth;
    if (depth == 0) capture();
    else recurse(depth - 1);
    local = local + 1;
}

}  // namespace

TEST_CASE("deep recursions are captured in full") {
    tally = {};
    for (int round = 0; round < 3; ++round)
        for (int depth : {1, 27, 28, 29, 100, 500, 1500}) recurse(depth);
    CHECK(tally.wrong == 0);
    CHECK(tally.deepest > 1500);
}

namespace {

ucontext_t main_context, coroutine_context;

void on_coroutine_stack(int depth) {
    recurse(depth);
    swapcontext(&coroutine_context, &main_context);  // resumed once by run_coroutine
    recurse(depth / 2);
}

// Enters a coroutine twice, on a stack in the given memory; the second time it ends.
void run_coroutine(void* memory, std::size_t bytes, int depth) {
    getcontext(&coroutine_context);
    coroutine_context.uc_stack.ss_sp = memory;
    coroutine_context.uc_stack.ss_size = bytes;
    coroutine_context.uc_link = &main_context;
    makecontext(&coroutine_context, reinterpret_cast<void (*)()>(on_coroutine_stack), 1, depth);
    for (int turn = 0; turn < 2; ++turn) {
        expected_root = lost_root;  // makecontext's start routine has no caller
        swapcontext(&main_context, &coroutine_context);
        expected_root = complete_root;
        if (turn == 0) recurse(3);
    }
}

}  // namespace

// AddressSanitizer starts a coroutine in a function of its own, whose caller libunwind does not
// find.
TEST_CASE("stacks of coroutines are captured in memory that is mapped and unmapped" *
          doctest::skip(assay::is_sanitized)) {
    tally = {};
    constexpr std::size_t bytes = 256 << 10;
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        const int depth = static_cast<int>(random() % 100);
        if (round % 2) {
            // With an unreadable guard page at either end.
            auto* memory = static_cast<char*>(
                mmap(nullptr, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            mprotect(memory + 4096, bytes - round * 1000 / 4096 * 4096, PROT_READ | PROT_WRITE);
            run_coroutine(memory + 4096,
                          bytes - static_cast<std::size_t>(round * 1000 / 4096 * 4096), depth);
            munmap(memory, bytes + 8192);
        } else {
            void* memory = std::malloc(bytes);  // its own mapping, unmapped without a hook
            run_coroutine(memory, bytes, depth);
            std::free(memory);
        }
    }
    CHECK(tally.captures == 600);
    CHECK(tally.wrong == 0);
    CHECK(tally.deepest > 90);
}

TEST_CASE("a hit equals a walk by rules, and a stack is stored once") {
    struct Twice {
        static __attribute__((noinline)) std::pair<StackId, StackId> stack() {
            const Frame caller = ASSAY_CALLER();
            return {unwinder().capture(caller, tree()), unwinder().walk(caller, tree())};
        }
    };
    std::uint64_t walks = 0;
    StackId first = no_stack;
    for (int k = 0; k < 100; ++k) {
        const auto [hit, walked] = Twice::stack();
        CHECK(hit == walked);
        if (k == 0) {
            first = hit;
            walks = unwinder().counts().walks;
        }
        CHECK(hit == first);
    }
    CHECK(unwinder().counts().walks == walks);
}

namespace {

std::uint64_t compared = 0, different = 0;

__attribute__((noinline)) void compare_with_walk() {
    const Frame caller = ASSAY_CALLER();
    ++compared;
    different += unwinder().capture(caller, tree()) != unwinder().walk(caller, tree());
}

// Leaves some calls by an exception, and some by longjmp to `back`.
__attribute__((noinline)) void grow(Random& random, int depth, std::jmp_buf& back) {
    compare_with_walk();
    if (depth == 0) return;
    const unsigned choice = static_cast<unsigned>(random()) % 64;
    if (choice == 0) throw depth;
    if (choice == 1) std::longjmp(back, 1);
    grow(random, depth - 1, back);
    try {
        grow(random, depth - 1, back);
    } catch (int) {
        compare_with_walk();
    }
    compare_with_walk();
}

__attribute__((noinline)) void grow_once(Random& random, int depth) {
    std::jmp_buf back;
    if (setjmp(back) != 0) return compare_with_walk();
    try {
        grow(random, depth, back);
    } catch (int) {
        compare_with_walk();
    }
}

}  // namespace

TEST_CASE("a recursion with more stacks than the memo holds is captured as a walk would") {
    Random random(5);
    const std::uint64_t lost = unwinder().counts().lost;
    while (compared < 300'000) grow_once(random, 14);
    CHECK(different == 0);
    CHECK(unwinder().counts().lost == lost);
}

namespace {

// Code that is generated at run time, followed by nops.
class Code {
public:
    explicit Code(const std::vector<unsigned char>& code) {
        std::memset(memory_, 0x90, size);
        std::copy(code.begin(), code.end(), static_cast<unsigned char*>(memory_));
    }
    ~Code() { munmap(memory_, size); }
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;

    std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(memory_) + offset;
    }

private:
    static constexpr std::size_t size = 8192;
    void* memory_ =
        mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
};

using Probe = void (*)();
StackId probed = no_stack;
void probe() { probed = unwinder().capture(ASSAY_CALLER(), tree()); }

std::vector<std::uint64_t> stack_through(std::uint64_t code, StackId& root) {
    reinterpret_cast<void (*)(Probe)>(code)(probe);
    std::vector<std::uint64_t> addresses(max_frames);
    addresses.resize(path(probed, addresses.data(), max_frames, root));
    return addresses;
}

}  // namespace

TEST_CASE(
    "code without call-frame information is unwound if it sets up a frame pointer, and only then") {
    struct Case {
        std::vector<unsigned char> code;
        std::size_t begin, returns;  // offsets: of the function, and of what follows its call
        bool is_followed;
    };
    const auto with_nops = [](std::size_t nops) {
        std::vector<unsigned char> code(nops, 0x90);
        const unsigned char frame[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10},
                            rest[] = {0xff, 0xd7, 0xc9, 0xc3};
        code.insert(code.begin(), std::begin(frame), std::end(frame));
        code.insert(code.end(), std::begin(rest), std::end(rest));
        return code;
    };
    const Case cases[] = {
        // push %rbp; mov %rsp,%rbp; sub $16,%rsp; call *%rdi; leave; ret
        {{0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd7, 0xc9, 0xc3}, 0, 10, true},
        // the other encoding of mov; mov %rbp,%rsp; pop %rbp; ret
        {{0x55, 0x48, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd7, 0x48, 0x8b, 0xe5, 0x5d, 0xc3},
         0,
         10,
         true},
        {with_nops(3000), 0, 3010, true},
        {with_nops(6000), 0, 6010, true},
        // sub $8,%rsp; call *%rdi; add $8,%rsp; ret
        {{0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3}, 0, 6, false},
        // the same behind a function that has a frame pointer: push %rbp; mov %rsp,%rbp; pop %rbp;
        // ret; int3; int3
        {{0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0xcc, 0xcc, 0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48,
          0x83, 0xc4, 0x08, 0xc3},
         8,
         14,
         false},
        // %rbp is used for something else: push %rbp; mov %rsp,%rbp; push %rbp; push %rbp;
        // xor %ebp,%ebp; call *%rdi; pop %rbp (three times); ret
        {{0x55, 0x48, 0x89, 0xe5, 0x55, 0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0x5d, 0x5d, 0xc3},
         0,
         10,
         false},
    };
    for (const Case& example : cases) {
        const Code jump({0xff, 0xe7});  // jmp *%rdi: the same stack without the example's frame
        const Code code(example.code);
        std::vector<std::uint64_t> stacks[2];
        StackId roots[2];
        const std::uint64_t begins[] = {jump.address(), code.address(example.begin)};
        for (int k = 0; k < 2; ++k) stacks[k] = stack_through(begins[k], roots[k]);
        REQUIRE(roots[0] == complete_root);
        REQUIRE(stacks[0].size() > 5);
        std::vector<std::uint64_t> expected{code.address(example.returns - 1)};
        if (example.is_followed)
            expected.insert(expected.end(), stacks[0].begin(), stacks[0].end());
        CHECK(stacks[1] == expected);
        CHECK(roots[1] == (example.is_followed ? complete_root : lost_root));
    }
}

TEST_CASE("calls of every form are recognised before a return address") {
    const std::vector<unsigned char> calls[] = {
        {0xe8, 1, 2, 3, 4},  // call rel32
        {0xff, 0xd0},
        {0x41, 0xff, 0xd4},  // *%rax, *%r12
        {0xff, 0x10},
        {0xff, 0x14, 0xc7},  // *(%rax), *(%rdi,%rax,8)
        {0xff, 0x50, 0x08},
        {0xff, 0x54, 0x24, 8},     // *8(%rax), *8(%rsp)
        {0xff, 0x15, 1, 2, 3, 4},  // *1(%rip)
        {0xff, 0x93, 1, 2, 3, 4},
        {0xff, 0x94, 0x24, 1, 2, 3, 4},
        {0xff, 0x14, 0xc5, 1, 2, 3, 4},  // *1(,%rax,8)
    };
    for (const auto& call : calls) {
        std::vector<unsigned char> code(16, 0x90);
        code.insert(code.end(), call.begin(), call.end());
        const Code page(code);
        CHECK(follows_call(page.address(code.size())));
    }
    const Code others({0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0, 0xff, 0xd0,
                       0x90});  // jmp *%rax; call *%rax; nop
    CHECK(!follows_call(others.address(9)));
    CHECK(follows_call(others.address(11)));
    CHECK(!follows_call(others.address(12)));
    CHECK(!follows_call(16));  // nothing can be read there
    CHECK(!keeps_frame_pointer(16));
}

TEST_CASE("rules of an unloaded object are forgotten") {
    fixed(
        *[] {
            static Random r(5);
            return &r;
        }(),
        3);
    const auto walks = unwinder().counts().walks;
    generation.fetch_add(1);
    tally = {};
    capture();
    CHECK(tally.wrong == 0);
    CHECK(unwinder().counts().walks > walks);
}
