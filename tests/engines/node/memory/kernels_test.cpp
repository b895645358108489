// Tests of the memory kernels of every instruction set of this processor: results are correct,
// every double is read, and every byte is written.
#include "node/memory/kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

using namespace assay::node;

namespace {

constexpr std::size_t n = 10 * kernel_step;
constexpr double guard = -7;

struct TestArrays {
    TestArrays() {
        for (double*& array : arrays) {
            array =
                static_cast<double*>(std::aligned_alloc(64, (n + kernel_step) * sizeof(double)));
            std::fill_n(array, n + kernel_step, guard);
        }
        for (std::size_t i = 0; i < n; ++i) {
            arrays[1][i] = static_cast<double>(i % 97);
            arrays[2][i] = static_cast<double>(i % 13);
        }
    }
    ~TestArrays() {
        for (double* array : arrays) std::free(array);
    }
    Arrays view() const { return {arrays[0], arrays[1], arrays[2], n}; }
    double* arrays[3];
};

double expected(std::string_view operation, const TestArrays& test, std::size_t i) {
    if (operation == "write") return 3;
    if (operation == "copy") return test.arrays[1][i];
    return test.arrays[1][i] + 3 * test.arrays[2][i];
}

}  // namespace

TEST_CASE("stores write every element correctly, and nothing beyond") {
    for (std::string_view set : {"avx512", "avx2", "sse2", "generic"})
        for (const Kernel& kernel : kernels(set)) {
            if (kernel.operation == "read") continue;
            CAPTURE(std::string(set));
            CAPTURE(std::string(kernel.operation));
            const TestArrays test;
            const double returned = kernel.run(test.view());
            bool is_correct = true;
            for (std::size_t i = 0; i < n; ++i)
                is_correct &= test.arrays[0][i] == expected(kernel.operation, test, i);
            CHECK(is_correct);
            CHECK(test.arrays[0][n] == guard);
            CHECK(returned == test.arrays[0][n / 2]);
        }
}

TEST_CASE("the result of a read depends on every double of the array, and on none beyond") {
    for (std::string_view set : {"avx512", "avx2", "sse2", "generic"})
        for (const Kernel& kernel : kernels(set)) {
            if (kernel.operation != "read") continue;
            CAPTURE(std::string(set));
            const TestArrays test;
            const double before = kernel.run(test.view());
            bool depends = true;
            for (std::size_t i = 0; i < n; ++i) {
                test.arrays[1][i] += 1000;
                depends &= kernel.run(test.view()) == before + 1000;
                test.arrays[1][i] -= 1000;
            }
            CHECK(depends);
            test.arrays[1][n] += 1000;
            CHECK(kernel.run(test.view()) == before);
        }
}

TEST_CASE("traffic counts the line reads of regular stores, which streaming stores do not make") {
    for (const Kernel& kernel : kernels()) {
        const double read = kernel.operation == "triad" ? 2 : kernel.operation == "write" ? 0 : 1;
        const double written = kernel.operation == "read" ? 0 : 1;
        CHECK(kernel.traffic == read + written * (kernel.stores == "regular" ? 2 : 1));
    }
    CHECK(kernels().front().operation == "read");
    CHECK(!kernels("generic").empty());
    CHECK(kernels("mmx").empty());
}
