// Time to capture a call stack of about 20 frames: on a hit of the unwinder's memo of stack
// layouts, by unwinding rules alone, and by libunwind's cached backtrace. Prints one JSON line per
// figure.
#define UNW_LOCAL_ONLY
#include <fmt/format.h>
#include <libunwind.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "profile/stack/unwinder.hpp"

using namespace assay::stack;

namespace {

enum class Mode { none, memo, rules, libunwind };

Mode mode;
Unwinder* unwinder;
Tree tree;
std::uint64_t sink, frames;

double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

__attribute__((noinline)) void capture() {
    const Frame caller = ASSAY_CALLER();
    if (mode == Mode::memo) sink += unwinder->capture(caller, tree);
    if (mode == Mode::rules) sink += unwinder->walk(caller, tree);
    if (mode == Mode::libunwind) {
        void* pcs[64];
        frames = static_cast<std::uint64_t>(unw_backtrace(pcs, 64));
        sink += frames;
    }
}

struct Walker {
    std::uint64_t state = 88172645463325252ull, left = 0;
    bool coin() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state & 1;
    }
};

// A tree of calls with two branches memory every fifth level, so that a leaf has several stacks.
template <int Depth, int Path>
__attribute__((noinline)) void descend(Walker& w) {
    volatile char pad[24 + 8 * (Depth % 4)];
    pad[0] = Depth;
    if constexpr (Depth == 0) {
        capture();
        --w.left;
    } else if constexpr (Depth % 5 == 4) {
        if (w.coin()) descend<Depth - 1, Path * 2>(w);
        else descend<Depth - 1, Path * 2 + 1>(w);
    } else {
        descend<Depth - 1, Path>(w);
    }
    pad[1] = pad[0];
}

double nanoseconds(Mode new_mode, std::uint64_t captures) {
    mode = new_mode;
    Walker w;
    w.left = captures;
    const double begin = cpu_seconds();
    while (w.left > 0) descend<16, 1>(w);
    return (cpu_seconds() - begin) / static_cast<double>(captures) * 1e9;
}

}  // namespace

int main() {
    void* memory = mmap(nullptr, sizeof(Unwinder), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || !tree.reserve(1 << 20)) return 2;
    unwinder = static_cast<Unwinder*>(memory);
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* low = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &low, &bytes);
    unwinder->set_bounds(
        {reinterpret_cast<std::uint64_t>(low), reinterpret_cast<std::uint64_t>(low) + bytes});
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_PER_THREAD);

    constexpr int rounds = 9;
    constexpr std::uint64_t captures = 2'000'000;
    std::vector<double> memo, rules, libunwind;
    for (int r = 0; r < rounds; ++r) {
        const double baseline = nanoseconds(Mode::none, captures);
        memo.push_back(nanoseconds(Mode::memo, captures) - baseline);
        rules.push_back(nanoseconds(Mode::rules, captures / 8) - baseline);
        libunwind.push_back(nanoseconds(Mode::libunwind, captures / 8) - baseline);
    }
    const auto print_figure = [](const char* name, std::vector<double> v, const char* limit) {
        std::sort(v.begin(), v.end());
        fmt::print(
            "{{\"name\": \"{}\", \"value\": {:.1f}, \"unit\": \"ns\", \"better\": \"lower\", "
            "\"limit\": {}, "
            "\"frames\": {}, \"spread\": [{:.1f}, {:.1f}]}}\n",
            name, v[v.size() / 2], limit, frames, v.front(), v.back());
    };
    print_figure("heap.unwind.hit", memo, "30");
    print_figure("heap.unwind.rules", rules, "null");
    print_figure("heap.unwind.libunwind", libunwind, "null");
    return sink == 1;
}
