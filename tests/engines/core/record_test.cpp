// Tests of the JSON lines that a Sink writes: records, and messages such as hello and progress.
#include "core/record.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>

using namespace assay;

namespace {

constexpr std::array recorded_metrics = {Metric{"bandwidth", "B/s", Better::higher, ""}};
constexpr Measurement recorded{"test.probe",     Scope::pair, "",     {},
                               recorded_metrics, nullptr,     nullptr};

// The record that a call writes.
template <class Call>
Json written_record(Call call) {
    int pipe_fds[2];
    REQUIRE(pipe(pipe_fds) == 0);
    Sink sink(pipe_fds[1]);
    call(sink);
    close(pipe_fds[1]);
    std::string text(65536, '\0');
    const ssize_t n = read(pipe_fds[0], text.data(), text.size());
    close(pipe_fds[0]);
    REQUIRE(n > 0);
    text.resize(static_cast<std::size_t>(n));
    CHECK(text.back() == '\n');
    CHECK(text.find('\n') == text.size() - 1);
    return Json::parse(text);
}

}  // namespace

TEST_CASE("a measurement takes its unit and direction from the registry") {
    const std::vector<double> samples = {1, 2, 3};
    const Json record = written_record([&](Sink& s) {
        s.measurement(recorded, "bandwidth", {.host = "a", .peer = "b", .numa = 1}, {{"size", 64}},
                      summarize(samples), samples);
    });
    CHECK(record["kind"] == "measurement");
    CHECK(record["unit"] == "B/s");
    CHECK(record["better"] == "higher");
    CHECK(record["subject"] == Json{{"host", "a"}, {"peer", "b"}, {"numa", 1}});
    CHECK(record["params"]["size"] == 64);
    CHECK(record["summary"]["median"] == 2);
    CHECK(record["samples"].size() == 3);
}

TEST_CASE("pair values keep five digits") {
    const std::vector<std::string> peers = {"b", "c"};
    const std::vector<double> values = {1.23456789e9, 0};
    const Json record = written_record(
        [&](Sink& s) { s.pairs(recorded, "bandwidth", {.host = "a"}, {}, peers, values); });
    CHECK(record["peers"] == Json{"b", "c"});
    CHECK(record["values"][0].get<double>() == doctest::Approx(1.2346e9).epsilon(1e-6));
    CHECK(record["values"][1] == 0);
}

TEST_CASE("the fields of failure, corruption, hello, progress and waived records") {
    CHECK(written_record([](Sink& s) { s.failure("reason", "fix", {.host = "a"}); })["problem"] ==
          "reason");
    const Json corruption = written_record(
        [](Sink& s) { s.corruption(recorded, {.host = "a"}, {{"size", 8}}, 3, 8, 0xff, 0xfe); });
    CHECK(corruption["offset"] == 8);
    CHECK(corruption["expected"] == "00000000000000ff");
    CHECK(written_record([](Sink& s) { s.hello(3, "a"); })["rank"] == 3);
    CHECK(written_record([](Sink& s) { s.progress(0.5, "x"); })["done"] == 0.5);
    const Json waived =
        written_record([](Sink& s) { s.waived(recorded, "bandwidth", {}, {}, "no device"); });
    CHECK(waived["status"] == "waived");
    CHECK(waived["reason"] == "no device");
}
