#include "core/record.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <string>

using namespace assay;

namespace {

constexpr std::array metrics = {Metric{"bandwidth", "B/s", Better::higher, ""}};
constexpr Measurement probe{"test.probe", Scope::pair, "", {}, metrics, nullptr, nullptr};

// The record that a call writes.
template <class Call>
Json written(Call call) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    Sink sink(ends[1]);
    call(sink);
    close(ends[1]);
    std::string text(65536, '\0');
    const ssize_t n = read(ends[0], text.data(), text.size());
    close(ends[0]);
    REQUIRE(n > 0);
    text.resize(static_cast<std::size_t>(n));
    CHECK(text.back() == '\n');
    CHECK(text.find('\n') == text.size() - 1);
    return Json::parse(text);
}

}  // namespace

TEST_CASE("a measurement takes its unit and direction from the registry") {
    const std::vector<double> samples = {1, 2, 3};
    const Json r = written([&](Sink& s) {
        s.measurement(probe, "bandwidth", {.host = "a", .peer = "b", .numa = 1}, {{"size", 64}},
                      summarize(samples), samples);
    });
    CHECK(r["kind"] == "measurement");
    CHECK(r["unit"] == "B/s");
    CHECK(r["better"] == "higher");
    CHECK(r["subject"] == Json{{"host", "a"}, {"peer", "b"}, {"numa", 1}});
    CHECK(r["params"]["size"] == 64);
    CHECK(r["summary"]["median"] == 2);
    CHECK(r["samples"].size() == 3);
}

TEST_CASE("pair values keep five digits") {
    const std::vector<std::string> peers = {"b", "c"};
    const std::vector<double> values = {1.23456789e9, 0};
    const Json r =
        written([&](Sink& s) { s.pairs(probe, "bandwidth", {.host = "a"}, {}, peers, values); });
    CHECK(r["peers"] == Json{"b", "c"});
    CHECK(r["values"][0].get<double>() == doctest::Approx(1.2346e9).epsilon(1e-6));
    CHECK(r["values"][1] == 0);
}

TEST_CASE("the fields of failure, corruption, hello, progress and waived records") {
    CHECK(written([](Sink& s) { s.failure("reason", "fix", {.host = "a"}); })["problem"] ==
          "reason");
    const Json c = written(
        [](Sink& s) { s.corruption(probe, {.host = "a"}, {{"size", 8}}, 3, 8, 0xff, 0xfe); });
    CHECK(c["offset"] == 8);
    CHECK(c["expected"] == "00000000000000ff");
    CHECK(written([](Sink& s) { s.hello(3, "a"); })["rank"] == 3);
    CHECK(written([](Sink& s) { s.progress(0.5, "x"); })["done"] == 0.5);
    const Json w = written([](Sink& s) { s.waived(probe, "bandwidth", {}, {}, "no device"); });
    CHECK(w["status"] == "waived");
    CHECK(w["reason"] == "no device");
}
