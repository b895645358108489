// Pairs of malloc and free, timed as a whole. The allocator study's figure is compared with it.
// Prints seconds per pair.
#include <chrono>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
    const long pairs = argc > 1 ? std::atol(argv[1]) : 20'000'000;
    const auto begin = std::chrono::steady_clock::now();
    for (long k = 0; k < pairs; ++k) {
        void* block = std::malloc(16);
        asm volatile("" : : "r"(block) : "memory");
        std::free(block);
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    std::printf("%.6e\n", elapsed.count() / static_cast<double>(pairs));
}
