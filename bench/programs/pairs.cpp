// Pairs of malloc and free as a program makes them, with one clock around all of them: what the
// allocator study's own figure is held against. Prints seconds a pair.
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
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.6e\n", took.count() / static_cast<double>(pairs));
}
