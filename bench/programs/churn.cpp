// Allocates and frees N blocks in T threads, 13 frames deep along 8 paths, with a mix of sizes and
// 256 live blocks per thread. It does little but malloc and free: the worst case for a heap
// profiler.
//
//     churn [N = 20000000] [T = 2]      prints the time in seconds
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

namespace {

struct Worker {
    std::uint64_t random;
    void* ring[256] = {};
    unsigned next_slot = 0;

    std::uint64_t next() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        return random;
    }
};

// A size from a random number. Most are small; 1 of 16 has some KiB, 1 of 256 tens of KiB, 1 of
// 4096 hundreds of KiB.
std::size_t block_size(std::uint64_t r) {
    const auto share = r & 4095;
    r >>= 12;
    if (share == 0) return (256 << 10) + (r & 0x3ffff);
    if (share < 17) return (16 << 10) + (r & 0x3fff);
    if (share < 273) return 1024 + (r & 0x7ff);
    return 16 + (r & 0x1ff);
}

template <int path>
NOINLINE void leaf(Worker& w) {
    auto* block = static_cast<char*>(std::malloc(block_size(w.next())));
    *static_cast<volatile char*>(block) = 1;
    void*& oldest = w.ring[w.next_slot++ % 256];
    std::free(oldest);
    oldest = block;
}

// Every fifth frame chooses its callee, so that the innermost frames do not determine the stack.
// Frame sizes differ.
template <int depth, int path>
NOINLINE void descend(Worker& w) {
    volatile char frame[24 + 8 * (depth % 4)];
    frame[0] = depth;
    if constexpr (depth == 0) leaf<path>(w);
    else if constexpr (depth % 5 == 4)
        w.next() % 2 == 0 ? descend<depth - 1, 2 * path>(w) : descend<depth - 1, 2 * path + 1>(w);
    else descend<depth - 1, path>(w);
    frame[1] = frame[0];
}

void run(std::uint64_t blocks, std::uint64_t seed) {
    auto* w = new Worker{seed * 0x9e3779b97f4a7c15ull + 1};
    for (std::uint64_t k = 0; k < blocks; ++k) descend<12, 1>(*w);
    for (void* block : w->ring) std::free(block);
    delete w;
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t blocks = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000'000;
    const int count = argc > 2 ? std::atoi(argv[2]) : 2;
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < count; ++t)
        threads.emplace_back(run, blocks / static_cast<std::uint64_t>(count), t + 1);
    for (std::thread& thread : threads) thread.join();
    std::printf("%.6f\n",
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}
