// Tests of the event builder over the null transport (ranks as threads, with planted faults): every
// fragment is built or accounted for, and planted faults are found.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include "core/error.hpp"
#include "events/schedule.hpp"
#include "ranks.hpp"

using namespace assay;
using namespace assay::events;

namespace {

// Options for small fragments and slices, and `more`. Without a duration, the number of events ends
// the run.
std::vector<std::string> options_with(std::vector<std::string> more) {
    std::vector<std::string> options = {"--fragment", "4KiB", "--slice", "0.01"};
    if (std::ranges::find(more, "--duration") == more.end())
        options.insert(options.end(), {"--duration", "0"});
    options.insert(options.end(), more.begin(), more.end());
    return options;
}

void check_clean(const EventBuilderRun& run, double events, double sources) {
    CHECK(run.failure() == "");
    CHECK(run.value("events_built") == events);
    CHECK(run.value("events_incomplete") == 0);
    CHECK(run.value("fragments_built") == events * sources);
    CHECK(run.value("fragments_corrupt") == 0);
    CHECK(run.value("fragments_duplicate") == 0);
    CHECK(run.value("fragments_lost") == 0);
}

}  // namespace

TEST_CASE("each protocol, schedule and division of units builds every event") {
    for (const std::string protocol : {"push", "pull"})
        for (const std::string schedule : {"shift", "random", "all"})
            for (const std::string units : {"folded", "split"}) {
                CAPTURE(protocol);
                CAPTURE(schedule);
                CAPTURE(units);
                const EventBuilderRun run(5, links_of_1_gb_per_s(),
                                          options_with({"--events", "200", "--protocol", protocol,
                                                        "--schedule", schedule, "--units", units}));
                check_clean(run, 200, units == "folded" ? 5 : 2);
                CHECK(run.value("throughput") > 0);
                CHECK(run.value("latency") > 0);
            }
}

TEST_CASE(
    "progress names the builder unit that receives least, the open events and the lost ranks") {
    Faults faults = links_of_1_gb_per_s();
    faults.rate = 100e6;
    faults.receive[2] = 20e6;
    faults.deaths = {{.rank = 3, .kill_time = 2'500'000'000}};
    const EventBuilderRun run(4, faults,
                              {"--fragment", "1MiB", "--slice", "0.5", "--duration", "4"});
    std::vector<std::string> lines;
    for (const Json& record : run.records)
        if (record["kind"] == "progress") lines.push_back(record["label"]);
    const auto shown = [&](const std::string& first, const std::string& second) {
        return std::ranges::any_of(lines, [&](const std::string& line) {
            return line.find(first) != std::string::npos && line.find(second) != std::string::npos;
        });
    };
    CHECK(shown(":2 0.0", " open"));  // GB/s
    CHECK_FALSE(shown(":1 0.0", "least"));
    CHECK(shown("least", "1 lost"));
}

TEST_CASE("synchronised steps, filter units and real time build every event") {
    check_clean(EventBuilderRun(4, links_of_1_gb_per_s(),
                                options_with({"--events", "100", "--synchronised"})),
                100, 4);
    check_clean(
        EventBuilderRun(4, links_of_1_gb_per_s(),
                        options_with({"--events", "100", "--synchronised", "--in-flight", "1"})),
        100, 4);
    check_clean(EventBuilderRun(5, links_of_1_gb_per_s(),
                                options_with({"--events", "100", "--filters", "2"})),
                100, 3);
    check_clean(EventBuilderRun(3, {}, options_with({"--events", "300"})), 300, 3);
    check_clean(
        EventBuilderRun(3, {},
                        options_with({"--events", "300", "--protocol", "pull", "--filters", "1"})),
        300, 2);
}

TEST_CASE("the rate of the links is reached and not exceeded") {
    // One message in flight, because in this network model more messages would queue at receivers.
    const EventBuilderRun run(4, links_of_1_gb_per_s(),
                              {"--fragment", "64KiB", "--duration", "0.2", "--slice", "0.02",
                               "--credits", "4", "--in-flight", "1"});
    // Each rank sends three quarters of its fragments to others.
    CHECK(run.value("network_throughput") > 4 * 0.97e9);
    CHECK(run.value("network_throughput") < 4 * 1.001e9);
    CHECK(!run.records_of("throughput", "events.slices").empty());
    CHECK(run.value("events_incomplete") == 0);
}

TEST_CASE("the input rate holds the builder back" * doctest::test_suite("slow")) {
    const EventBuilderRun run(
        4, links_of_1_gb_per_s(),
        {"--fragment", "4KiB", "--duration", "0.2", "--slice", "0.02", "--rate", "1e8"});
    CHECK(run.value("throughput") == doctest::Approx(4e8).epsilon(0.05));
}

TEST_CASE("a wrong byte is found and named, and its event is not built") {
    Faults faults = links_of_1_gb_per_s();
    faults.flips = {{2, 1, 10, 3000}};
    const EventBuilderRun run(3, faults, options_with({"--events", "100"}));
    CHECK(run.value("events_built") == 99);
    CHECK(run.value("events_incomplete") == 1);
    CHECK(run.value("fragments_corrupt") == 1);
    CHECK(run.value("fragments_partial") == 2);
    std::vector<Json> corruptions;
    for (const Json& record : run.records)
        if (record["kind"] == "corruption") corruptions.push_back(record);
    REQUIRE(corruptions.size() == 1);
    CHECK(corruptions[0]["subject"]["host"].get<std::string>().ends_with(":2"));
    CHECK(corruptions[0]["subject"]["peer"].get<std::string>().ends_with(":1"));
    CHECK(corruptions[0]["offset"] == 3000 - 96);
}

TEST_CASE("a message that arrives twice is counted, and its second copy is ignored") {
    Faults faults = links_of_1_gb_per_s();
    faults.duplicates = {{2, 1, 10}, {0, 1, 4}};
    const EventBuilderRun run(3, faults, options_with({"--events", "200"}));
    CHECK(run.value("events_built") == 200);
    CHECK(run.value("fragments_duplicate") == 2);
    CHECK(run.value("fragments_built") == 600);
}

TEST_CASE("fragments of unequal sizes share messages") {
    char path[] = "/tmp/assay-sizes-XXXXXX";
    const int file = mkstemp(path);
    const std::string text = "0 normal 400 50\n1 fixed 16\n* uniform 1 90\n";
    REQUIRE(write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(file);
    for (const std::string protocol : {"push", "pull"}) {
        const EventBuilderRun run(4, links_of_1_gb_per_s(),
                                  options_with({"--events", "5003", "--sizes-file", path,
                                                "--protocol", protocol, "--filters", "1"}));
        check_clean(run, 5003, 3);
    }
    unlink(path);
}

TEST_CASE("fragments of one byte and of 4 MiB are in one event") {
    char path[] = "/tmp/assay-sizes-XXXXXX";
    const int file = mkstemp(path);
    const std::string text = "0 fixed 1\n1 fixed 4MiB\n* fixed 1\n";
    REQUIRE(write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(file);
    check_clean(EventBuilderRun(3, {},
                                {"--duration", "0", "--events", "20", "--credits", "1", "--slice",
                                 "1", "--sizes-file", path}),
                20, 3);
    unlink(path);
}

TEST_CASE("the time without a built event counts from the last one, not from the first closed" *
          doctest::test_suite("slow")) {
    // Peers notice the death at different times: those before rank 0 close their events first.
    for (const int lost : {1, 2, 3})
        for (const std::string protocol : {"push", "pull"}) {
            Faults faults = links_of_1_gb_per_s();
            faults.deaths = {{.rank = lost,
                              .kill_time = 2'000'000,
                              .notice_delay = 50'000'000,
                              .notice_spread = 2'000'000}};
            const EventBuilderRun run(4, faults,
                                      options_with({"--duration", "0.06", "--protocol", protocol}));
            CHECK(run.failure() == "");
            CAPTURE(lost);
            CAPTURE(protocol);
            CHECK(run.value("resume") >= 0.05);
        }
}

TEST_CASE("the start names the ranks that it waits for") {
    Faults faults = links_of_1_gb_per_s();
    faults.transmit[2] = 100;  // B/s: its hello takes seconds
    const EventBuilderRun run(3, faults,
                              {"--fragment", "256", "--events", "3", "--duration", "0", "--slice",
                               "10", "--timeout", "1000"});
    check_clean(run, 3, 3);
    std::vector<std::vector<int>> waits;
    for (const Json& record : run.records)
        if (record["kind"] == "waiting") waits.push_back(record["ranks"]);
    REQUIRE(waits.size() >= 2);
    // The other rank's hello may be behind it.
    CHECK(waits.front().back() == 2);
    CHECK(waits.back().empty());
    // No event is built before all are there.
    bool builds = false;
    for (const Json& record : run.records) {
        if (record["kind"] == "progress" || record.value("name", "") == "events.build")
            builds = true;
        if (record["kind"] == "waiting" && !record["ranks"].empty()) CHECK_FALSE(builds);
    }
}

TEST_CASE("a slow filter unit and a stalled builder unit delay others, and nothing is lost") {
    const EventBuilderRun slow(
        4, links_of_1_gb_per_s(),
        options_with({"--events", "100", "--filters", "1", "--filter-rate", "1e7"}));
    check_clean(slow, 100, 3);
    double waited = 0;
    for (const Json& record : slow.records_of("backpressure"))
        if (record["params"]["waiting_for"] == "filter")
            waited += record["summary"]["median"].get<double>();
    CHECK(waited > 0.05);  // 1.2 MB at 10 MB/s, three builder units
    Faults faults = links_of_1_gb_per_s();
    faults.stalls = {{2, 200'000, 50'000'000}};
    check_clean(EventBuilderRun(4, faults, options_with({"--events", "300"})), 300, 4);
}

TEST_CASE("the rate is that of the time in which events were assigned, not of the rest after it") {
    // The builder units hold 9 MB at the end, which the filter unit takes for 0.9 s.
    const EventBuilderRun run(4, links_of_1_gb_per_s(),
                              options_with({"--duration", "0.2", "--credits", "256", "--filters",
                                            "1", "--filter-rate", "1e7"}));
    REQUIRE(run.failure() == "");
    CHECK(run.value("throughput") > 0);
    CHECK(run.value("fragments_lost") == 0);
}

// ASSAY_DEATHS: the number of deaths; 200 take two minutes.
TEST_CASE("when ranks die at random times, every fragment is accounted for" *
          doctest::test_suite("slow")) {
    const char* deaths_text = std::getenv("ASSAY_DEATHS");
    const int deaths =
        deaths_text != nullptr ? static_cast<int>(std::strtol(deaths_text, nullptr, 10)) : 30;
    std::mt19937 random(20260101);
    int resumed = 0;
    for (int i = 0; i < deaths; ++i) {
        CAPTURE(i);
        const int ranks = 3 + static_cast<int>(random() % 5);
        Faults faults = links_of_1_gb_per_s();
        faults.rate = 1e8;
        Faults::Death death{
            .rank = 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1)),
            .kill_time = 100'000 + static_cast<Nanoseconds>(random() % 2'000'000)};
        if (random() % 2 == 0) death.return_delay = 30'000'000;
        faults.deaths = {death};
        // The policy `wait` waits for half of the timeout after the loss.
        std::vector<std::string> options = options_with({"--duration", "0.06", "--timeout", "0.8"});
        const char* policies[] = {"drop", "mark", "wait"};
        const std::string policy = policies[random() % 3];
        options.insert(options.end(), {"--policy", policy});
        if (random() % 2 == 0) options.insert(options.end(), {"--protocol", "pull"});
        else if (random() % 3 == 0) options.emplace_back("--synchronised");
        if (ranks > 4 && random() % 3 == 0) options.insert(options.end(), {"--units", "split"});
        else if (ranks > 4 && random() % 3 == 0) options.insert(options.end(), {"--filters", "2"});
        std::string option_text;
        for (const std::string& option : options) option_text += option + " ";
        CAPTURE(option_text);
        const EventBuilderRun run(ranks, faults, options);
        REQUIRE(run.failure() == "");
        CHECK(run.value("events_built") > 0);
        CHECK(run.value("fragments_corrupt") == 0);
        CHECK(run.value("fragments_duplicate") == 0);
        CHECK(run.balances(ranks));
        for (const Json& resume : run.records_of("resume"))
            if (resume.contains("summary")) {
                ++resumed;
                CHECK(resume["summary"]["median"].get<double>() < (policy == "wait" ? 0.5 : 0.05));
            }
    }
    CHECK(resumed > deaths * 3 / 4);
}

TEST_CASE("under policy wait, the fragments of a rank that comes back complete its events" *
          doctest::test_suite("slow")) {
    for (const std::string protocol : {"push", "pull"}) {
        Faults faults = links_of_1_gb_per_s();
        faults.deaths = {{.rank = 3, .kill_time = 1'000'000, .return_delay = 40'000'000}};
        // Ranks 1 and 3 are readout units, 2 is the builder unit.
        const EventBuilderRun run(4, faults,
                                  options_with({"--units", "split", "--duration", "0.2", "--policy",
                                                "wait", "--protocol", protocol}));
        CHECK(run.failure() == "");
        CHECK(run.value("events_built") > 0);
        CHECK(run.value("events_incomplete") == 0);
        CHECK(run.value("fragments_lost") == 0);
        CHECK(run.value("fragments_corrupt") == 0);
    }
}

// The two may come back at the same instant: each has to see the other before it is a member.
TEST_CASE("ranks that come back take part again, and the time until then is recorded") {
    for (const Nanoseconds between : {0, 1'000, 3'000'000}) {
        CAPTURE(between);
        Faults faults = links_of_1_gb_per_s();
        faults.rate = 2e7;
        faults.deaths = {{.rank = 1, .kill_time = 1'000'000, .return_delay = 40'000'000},
                         {.rank = 3, .kill_time = 1'000'000 + between, .return_delay = 40'000'000}};
        const EventBuilderRun run(5, faults, options_with({"--duration", "0.2", "--timeout", "1"}));
        REQUIRE(run.failure() == "");
        CHECK(run.value("fragments_corrupt") == 0);
        CHECK(run.value("fragments_duplicate") == 0);
        std::set<std::string> back;
        for (const Json& record : run.records_of("return")) {
            back.insert(record["params"]["lost"].get<std::string>());
            const double seconds = record["summary"]["median"].get<double>();
            CHECK(seconds > 0.005);
            CHECK(seconds < 0.1);
        }
        CHECK(back.size() == 2);
        CHECK(run.records_of("resume").size() == 2);
        // The ledger of the whole run says how many came back.
        CHECK(run.records_of("events_built").at(0)["params"]["returned"] == 2);
    }
}

namespace {

// The steps of a barrel shift among `members`, and then each other pair of ranks, a step for each.
std::vector<std::vector<int>> shift_among(const std::vector<int>& members, int ranks) {
    std::vector<std::vector<int>> steps;
    const std::vector<int> idle(static_cast<std::size_t>(ranks), no_rank);
    for (std::size_t k = 1; k < members.size(); ++k) {
        steps.push_back(idle);
        for (std::size_t i = 0; i < members.size(); ++i)
            steps.back()[static_cast<std::size_t>(members[i])] = members[(i + k) % members.size()];
    }
    for (int from = 0; from < ranks; ++from)
        for (int to = 0; to < ranks; ++to) {
            if (from == to || (std::ranges::binary_search(members, from) &&
                               std::ranges::binary_search(members, to)))
                continue;
            steps.push_back(idle);
            steps.back()[static_cast<std::size_t>(from)] = to;
        }
    return steps;
}

std::string plan_line(const std::vector<int>& members, int ranks) {
    const Json line = {
        {"kind", "plan"}, {"ranks", members}, {"steps", shift_among(members, ranks)}};
    return line.dump();
}

class PlanFile {
public:
    explicit PlanFile(int ranks) : path_("/tmp/assay-test-plan-" + std::to_string(getpid())) {
        std::vector<int> all(static_cast<std::size_t>(ranks));
        std::iota(all.begin(), all.end(), 0);
        std::ofstream file(path_);
        for (const auto& step : shift_among(all, ranks)) {
            for (const int to : step) file << to << ' ';
            file << '\n';
        }
    }
    ~PlanFile() { unlink(path_.c_str()); }
    PlanFile(const PlanFile&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace

TEST_CASE("all follow the plan for those that are left, and the whole one when a rank is back" *
          doctest::test_suite("slow")) {
    const PlanFile file(5);
    // The launcher's lines: among them some for other members, and some that are none.
    const std::string lines[] = {plan_line({0, 1, 2}, 5), plan_line({0, 1, 3, 4}, 5),
                                 plan_line({0, 1, 2, 3, 4}, 5)};
    for (const char* mode : {"--synchronised", "--protocol=push", "--protocol=pull"}) {
        CAPTURE(mode);
        Faults faults = links_of_1_gb_per_s();
        faults.rate = 1e8;
        faults.deaths = {{.rank = 2, .kill_time = 1'000'000, .return_delay = 40'000'000}};
        int asked = 0;
        faults.launcher_line = [&] { return lines[asked++ % 3]; };
        const EventBuilderRun run(
            5, faults,
            options_with({mode, "--schedule", "file", "--schedule-file", file.path(), "--duration",
                          "0.2", "--timeout", "1"}));
        REQUIRE(run.failure() == "");
        CHECK(run.value("fragments_corrupt") == 0);
        CHECK(run.value("fragments_duplicate") == 0);
        CHECK(run.balances(5));
        CHECK(run.records_of("return").size() == 1);
        std::vector<int> steps;
        for (const Json& record : run.records_of("replan"))
            steps.push_back(record["params"]["steps"].get<int>());
        // Three steps for four ranks, and eight pairs with the lost one.
        CHECK(steps == std::vector<int>{3 + 8, 4});
    }
}

TEST_CASE("a plan that is none is not followed, and the run goes on" *
          doctest::test_suite("slow")) {
    const PlanFile file(4);
    Json few = Json::parse(plan_line({0, 1, 3}, 4));
    few["steps"].erase(few["steps"].size() - 1);
    Json many = Json::parse(plan_line({0, 1, 3}, 4));
    for (int i = 0; i < 200; ++i) many["steps"].push_back({-1, -1, -1, -1});
    Json words = Json::parse(plan_line({0, 1, 3}, 4));
    words["steps"] = "all";
    for (const std::string& line :
         {few.dump(), many.dump(), words.dump(), std::string("{"), std::string("[]")}) {
        CAPTURE(line.substr(0, 60));
        Faults faults = links_of_1_gb_per_s();
        faults.rate = 1e8;
        faults.deaths = {{.rank = 2, .kill_time = 1'000'000}};
        faults.launcher_line = [&] { return line; };
        const EventBuilderRun run(
            4, faults,
            options_with({"--synchronised", "--schedule", "file", "--schedule-file", file.path(),
                          "--duration", "0.1", "--timeout", "1"}));
        REQUIRE(run.failure() == "");
        CHECK(run.records_of("replan").empty());
        CHECK(run.records_of("resume").size() == 1);
        CHECK(run.balances(4));
    }
}

TEST_CASE("the death of the event manager ends the run") {
    Faults faults = links_of_1_gb_per_s();
    faults.deaths = {{.rank = 0, .kill_time = 1'000'000}};
    const EventBuilderRun run(3, faults, options_with({"--events", "10000"}));
    CHECK(run.aborted);
    CHECK(run.failure().find("rank 0, the event manager, was lost") != std::string::npos);
}

TEST_CASE("invalid options are refused") {
    CHECK_THROWS_AS(EventBuilderRun(1, {}, options_with({"--events", "1"})), Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({"--events", "1", "--filters", "2"})),
                    Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({})), Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({"--events", "1", "--schedule", "file"})),
                    Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({"--events", "1", "--protocol", "shove"})),
                    Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({"--events", "1", "--credits", "0"})),
                    Error);
    CHECK_THROWS_AS(EventBuilderRun(3, {}, options_with({"--events", "1", "--fragment", "0"})),
                    Error);
    CHECK_THROWS_AS(
        EventBuilderRun(3, {}, options_with({"--events", "1", "--sizes-file", "/nowhere/sizes"})),
        Error);
}
