// Tests of the options of measurements: defaults, units, and refused values.
#include "core/options.hpp"

#include <doctest/doctest.h>

#include <array>

#include "core/error.hpp"

using namespace assay;

namespace {

constexpr std::array parameters = {
    Parameter{"size", Kind::integer, "B", "1024", "a size", 1, 1 << 30},
    Parameter{"share", Kind::real, "", "0.5", "a share", 0, 1},
    Parameter{"no_verify", Kind::flag, "", "", "a flag"},
    Parameter{"sizes", Kind::integers, "B", "1,2", "sizes", 1},
    Parameter{"op", Kind::text, "", "send", "an operation"},
};
constexpr std::array metrics = {Metric{"bandwidth", "B/s", Better::higher, ""}};
constexpr Measurement probe{"test.probe", Scope::node, "a probe", parameters,
                            metrics,      nullptr,     nullptr};

}  // namespace

TEST_CASE("defaults apply to options that are not given") {
    const Options o = Options::parse(probe, {});
    CHECK(o.integer("size") == 1024);
    CHECK(o.real("share") == 0.5);
    CHECK_FALSE(o.flag("no_verify"));
    CHECK(o.integers("sizes") == std::vector<std::int64_t>{1, 2});
    CHECK(o.text("op") == "send");
}

TEST_CASE("values are parsed, byte counts with binary units") {
    const Options o = Options::parse(
        probe, {"--size", "64KiB", "--share", "0.25", "--no-verify", "--sizes", "1,4KiB,1MiB"});
    CHECK(o.integer("size") == 65536);
    CHECK(o.real("share") == 0.25);
    CHECK(o.flag("no_verify"));
    CHECK(o.integers("sizes") == std::vector<std::int64_t>{1, 4096, 1048576});
}

TEST_CASE("bad values and unknown options are refused") {
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"--size", "0"},
                                               {"--size", "x"},
                                               {"--size", "1.5"},
                                               {"--share", "2"},
                                               {"--what", "1"},
                                               {"--size"},
                                               {"--sizes", "1,,2"},
                                               {"--sizes", "1,2,"},
                                               {"--sizes", "1,0"},
                                               {"--size", "-5"}}) {
        CAPTURE(arguments);
        CHECK_THROWS_AS(Options::parse(probe, arguments), Error);
    }
}

TEST_CASE("measurements and metrics are found by name or refused") {
    CHECK(find_measurement({&probe, 1}, "test.probe").name == "test.probe");
    CHECK_THROWS_AS(find_measurement({&probe, 1}, "test.none"), Error);
    CHECK(probe.metric("bandwidth").unit == "B/s");
    CHECK_THROWS_AS(probe.metric("latency"), Error);
}
