// Tests of the end of a wait for nodes that cannot write a file.
#include "storage/accelerator/failing_wait.hpp"

#include <doctest/doctest.h>

using assay::storage::FailingWait;

namespace {

constexpr std::uint64_t begin = 7'000'000'000, shortest = 5'000'000'000;
constexpr std::uint64_t early = begin + shortest - 1, late = begin + shortest;
constexpr std::uint64_t last = begin + FailingWait::longest_ns;

}  // namespace

TEST_CASE("a wait without a failing node has no limit") {
    FailingWait wait(begin, shortest);
    CHECK_FALSE(wait.is_over(late, {}));
    CHECK_FALSE(wait.is_over(last + last, {}));
}

TEST_CASE("a wait is given up after its time and two retries in vain") {
    FailingWait wait(begin, shortest);
    CHECK_FALSE(wait.is_over(begin, {{0, 40}}));
    CHECK_FALSE(wait.is_over(late, {{0, 41}}));  // may have begun before the wait
    CHECK_FALSE(wait.is_over(early, {{0, 42}}));
    CHECK(wait.is_over(late, {{0, 42}}));
}

TEST_CASE("each failing node has to retry") {
    FailingWait wait(begin, shortest);
    CHECK_FALSE(wait.is_over(begin, {{0, 1}, {1, 1}}));
    CHECK_FALSE(wait.is_over(late, {{0, 9}, {1, 2}}));
    CHECK_FALSE(wait.is_over(late, {{0, 9}, {1, 3}, {2, 8}}));  // node 2 begins to fail
    CHECK_FALSE(wait.is_over(late, {{0, 9}, {1, 3}, {2, 9}}));
    CHECK(wait.is_over(late, {{0, 9}, {1, 3}, {2, 10}}));
    CHECK(wait.is_over(late, {{0, 9}, {1, 3}}));  // node 2 is well again
}

TEST_CASE("a node that does not retry is given up after the longest wait") {
    FailingWait wait(begin, shortest);
    CHECK_FALSE(wait.is_over(begin, {{0, 3}}));
    CHECK_FALSE(wait.is_over(last - 1, {{0, 3}}));
    CHECK(wait.is_over(last, {{0, 3}}));
}
