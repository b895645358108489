// Tests of paced memory workloads: their traffic, refused descriptions, and that a transposition is
// a permutation of the chunks.
#include "node/memory/workload.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "core/error.hpp"

using namespace assay;
using namespace assay::node;

namespace {

std::string workload(const std::string& steps,
                     const std::string& more = R"("chunk":1000,"multiplier":7)") {
    return R"({"name":"planted","stations":2,)" + more + R"(,"steps":[)" + steps + "]}";
}

}  // namespace

TEST_CASE("copies and transpositions count their bytes twice, as read and written") {
    const Workload w = parse_workload(workload(
        R"({"operation":"write","block":8000,"rate":1e6},{"operation":"copy","block":8000,"rate":1e6},)"
        R"({"operation":"transpose","block":8000,"rate":1e6},{"operation":"read","block":8000,"rate":1e6})"));
    CHECK(w.desired() == doctest::Approx(2 * 6e6));
    CHECK(w.memory() == 2 * 6 * 8000);
}

TEST_CASE("invalid workloads are refused") {
    CHECK_THROWS_AS(parse_workload("{"), Error);
    CHECK_THROWS_AS(parse_workload(R"({"name":"x","stations":0,"steps":[]})"), Error);
    CHECK_THROWS_AS(parse_workload(workload(R"({"operation":"swap","block":8000,"rate":1e6})")),
                    Error);
    CHECK_THROWS_AS(parse_workload(workload(R"({"operation":"read","block":8,"rate":1e6})")),
                    Error);
    CHECK_THROWS_AS(parse_workload(workload(R"({"operation":"read","block":8000,"rate":0})")),
                    Error);
    // 14 chunks, and 7 divides 14; one chunk alone; no chunk size.
    CHECK_THROWS_AS(
        parse_workload(workload(R"({"operation":"transpose","block":14000,"rate":1e6})")), Error);
    CHECK_THROWS_AS(parse_workload(workload(R"({"operation":"transpose","block":4096,"rate":1e6})",
                                            R"("chunk":4000)")),
                    Error);
    CHECK_THROWS_AS(parse_workload(workload(R"({"operation":"transpose","block":8000,"rate":1e6})",
                                            R"("multiplier":7)")),
                    Error);
}

TEST_CASE(
    "a transposition is a permutation whenever multiplier and chunks have no common divisor") {
    for (std::size_t chunks = 2; chunks < 300; ++chunks)
        for (std::size_t multiplier : {3, 7, 11}) {
            std::set<std::size_t> positions;
            for (std::size_t i = 0; i < chunks; ++i)
                positions.insert(transposed(i, multiplier, chunks));
            CHECK((positions.size() == chunks) == (std::gcd(multiplier, chunks) == 1));
        }
}
