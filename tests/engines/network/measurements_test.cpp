// Tests of whole network measurements over the null transport: their records, and relations between
// the measured values.
#include "network/measurements.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/error.hpp"
#include "core/options.hpp"
#include "core/text.hpp"
#include "network/concurrent_runs.hpp"
#include "ranks.hpp"

using namespace assay;
using namespace assay::network;

namespace {

void measure(Recording& recording, const Measurement& measurement, int ranks,
             const std::string& text, const Faults& faults = {}) {
    const Options options =
        Options::parse(measurement, split(text + (text.empty() ? "" : " ") + "--yield-us 0", ' '));
    run_ranks(ranks, faults, [&](Transport& transport) {
        Bench bench{recording.sink, transport};
        measurement.run(options, bench);
    });
}

double median(const Json& record) { return record["summary"]["median"].get<double>(); }

}  // namespace

TEST_CASE(
    "all to all: a record of every metric for every size and operation, and the accounting holds") {
    Recording recording;
    measure(recording, all_to_all, 3,
            "--sizes 1,4096 --op send,put,get --repeats 50 --budget 0 --schedule circle");
    for (const char* metric : {"bandwidth", "client_bandwidth", "rate", "latency", "time",
                               "wall_time", "bytes", "corrupted"})
        CHECK(recording.records_of("measurement", metric).size() == 6);
    CHECK(recording.records_of("measurement", "half_round_trip").size() ==
          2);  // of send, at either size
    for (const Json& bytes : recording.records_of("measurement", "bytes")) {
        const Json& params = bytes["params"];
        const double size = params["size"].get<double>();
        CHECK(params["iterations"] == 50);
        CHECK(params["schedule"] == "circle");
        CHECK(params["clients"] == 3);
        CHECK(median(bytes) == 3 * 2 * 50 * size);
        const auto same = [&](const char* metric) {
            for (const Json& record : recording.records_of("measurement", metric))
                if (record["params"] == params) return record;
            return Json();
        };
        // One pass here: bandwidth x wall = bytes, and bandwidth = rate x size.
        CHECK(median(same("bandwidth")) * median(same("wall_time")) ==
              doctest::Approx(median(bytes)));
        CHECK(median(same("rate")) * size == doctest::Approx(median(same("bandwidth"))));
        const Json times = same("time");
        CHECK(times["samples"].size() == 3);
        CHECK(times["summary"]["max"].get<double>() <= median(same("wall_time")) * (1 + 1e-9));
        // A stream measures the latency of 50 / 4 messages in each round; the other operations that
        // of each message.
        CHECK(same("latency")["summary"]["n"] == 3 * 2 * (params["op"] == "send" ? 50 / 4 : 50));
    }
    std::map<std::string, std::set<std::string>> rows;
    for (const Json& row : recording.records_of("pairs"))
        for (const Json& peer : row["peers"])
            rows[row["params"].dump()].insert(row["subject"]["host"].get<std::string>() +
                                              peer.get<std::string>());
    CHECK(rows.size() == 6);
    for (const auto& [params, pairs_seen] : rows) CHECK(pairs_seen.size() == 6);
    const auto contexts = recording.records_of("context");
    CHECK(std::count_if(contexts.begin(), contexts.end(), [](const auto& context) {
              return !context["subject"].contains("device");
          }) == 1);
}

TEST_CASE(
    "client/server: rectangular rows in the direction of the bytes, and half round trips of "
    "sends") {
    Recording recording;
    measure(recording, client_server, 5,
            "--servers 2 --sizes 512 --op send,put,get --nflight 3 --repeats 20 --budget 0");
    CHECK(recording.records_of("measurement", "half_round_trip").size() == 1);
    for (const Json& row : recording.records_of("pairs")) {
        const bool from_server = row["params"]["op"] == "get";
        CHECK(row["peers"].size() == (from_server ? 3u : 2u));
    }
    CHECK(recording.records_of("pairs").size() == 3 + 3 + 2);
    for (const Json& time : recording.records_of("measurement", "time"))
        CHECK(time["samples"].size() == 3);
    for (const Json& bytes : recording.records_of("measurement", "bytes")) {
        CHECK(median(bytes) == 3 * 2 * 20 * 512);
        CHECK(bytes["params"]["peers"] == 2);
        CHECK(bytes["params"]["inflight"] == 3);
    }
}

TEST_CASE("a corruption is counted and located, and its bytes do not count as arrived") {
    Faults faults;
    faults.flips = {{0, 1, 200, 333}};  // long after the warm-up
    Recording recording;
    measure(recording, all_to_all, 2, "--sizes 1024 --repeats 1000 --budget 0", faults);
    const auto corruptions = recording.records_of("corruption");
    REQUIRE(corruptions.size() == 1);
    CHECK(corruptions[0]["offset"] == 333);
    CHECK(corruptions[0]["params"]["size"] == 1024);
    CHECK(corruptions[0]["subject"]["host"].get<std::string>().ends_with(":0"));
    CHECK(corruptions[0]["subject"]["peer"].get<std::string>().ends_with(":1"));
    CHECK(median(recording.records_of("measurement", "corrupted")[0]) == 1);
    CHECK(median(recording.records_of("measurement", "bytes")[0]) == 1999 * 1024);
}

TEST_CASE("a sweep ends near its budget, has every size, and reports progress") {
    Recording recording;
    measure(recording, all_to_all, 3, "--sizes 1,64,4096,65536 --budget 0.5 --confidence 0",
            {.rate = 1e9, .delay = 1'000'000, .simulated_time = true});
    CHECK(recording.records_of("measurement", "bandwidth").size() == 4);
    double last = 0;
    for (const Json& progress : recording.records_of("progress")) {
        CHECK(progress["done"].get<double>() >= 0);
        CHECK(progress["done"].get<double>() <= 1);
        CHECK(progress["left_s"].get<double>() >= 0);
        last = progress["done"].get<double>();
    }
    CHECK(last > 0);
}

TEST_CASE("a simulated sweep has no more messages than its rate needs, and has the rate") {
    Recording recording;
    measure(recording, all_to_all, 2, "--sizes 100,1000 --budget 60",
            {.rate = 1e8, .delay = 1'000, .simulated_time = true});
    const auto bandwidths = recording.records_of("measurement", "bandwidth");
    REQUIRE(bandwidths.size() == 2);
    // A burst of 50 ms would be 50,000 messages of 100 B; 128 times 64 are enough.
    CHECK(bandwidths[0]["params"]["iterations"] <= 5 * 128 * 64);
    for (const Json& bandwidth : bandwidths)
        CHECK(median(bandwidth) == doctest::Approx(2 * 1e8).epsilon(0.01));
}

TEST_CASE("rounds are sampled when asked") {
    Recording recording;
    measure(recording, all_to_all, 8, "--sizes 8 --rounds 3 --repeats 2 --budget 0");
    for (const Json& row : recording.records_of("pairs")) CHECK(row["peers"].size() == 3);
    CHECK(median(recording.records_of("measurement", "bytes")[0]) == 8 * 3 * 2 * 8);
}

TEST_CASE("pairs: each listed pair is measured alone and in its direction") {
    Faults faults;
    faults.rate = 500e6;
    faults.transmit[2] = 5e6;
    faults.simulated_time = true;
    Recording recording;
    measure(recording, pairs, 4, "--pairs 2-0,0-2,1-3 --size 64KiB --repeats 3", faults);
    const auto bandwidths = recording.records_of("measurement", "bandwidth");
    REQUIRE(bandwidths.size() == 3);
    CHECK(bandwidths[0]["subject"]["host"].get<std::string>().ends_with(":2"));
    CHECK(bandwidths[0]["subject"]["peer"].get<std::string>().ends_with(":0"));
    CHECK(median(bandwidths[0]) == doctest::Approx(5e6).epsilon(0.01));
    for (const std::size_t pair : {1, 2})
        CHECK(median(bandwidths[pair]) == doctest::Approx(500e6).epsilon(0.01));
    CHECK(bandwidths[0]["summary"]["n"] == 3);
    CHECK(recording.records_of("measurement", "latency").size() == 3);
}

TEST_CASE("invalid options are an Error of rank 0, before anything is measured") {
    for (const char* text : {"--schedule xor", "--schedule spiral", "--op send,push", "--op ,",
                             "--nflight 60000 --sizes 1GiB"}) {
        Recording recording;
        CAPTURE(text);
        CHECK_THROWS_AS(measure(recording, all_to_all, 3, text), Error);
        CHECK(recording.records_of("measurement").empty());
    }
    Recording recording;
    CHECK_THROWS_AS(measure(recording, all_to_all, 1, ""), Error);
    CHECK_THROWS_AS(measure(recording, client_server, 3, "--servers 3"), Error);
    for (const char* text : {"--pairs 0-3", "--pairs 1-1", "--pairs 1", "--pairs 1-x", ""})
        CHECK_THROWS_AS(measure(recording, pairs, 3, text), Error);
    CHECK_THROWS_AS(Options::parse(all_to_all, {"--sizes", "0"}), Error);
}

TEST_CASE("machines with the same name are distinguished by their networks") {
    std::vector<Identity> ranks = {{.host = "localhost", .network = "a"},
                                   {.host = "localhost", .network = "b"},
                                   {.host = "localhost", .network = "a"},
                                   {.host = "n\n1", .network = "c"}};
    make_unique(ranks);
    CHECK(ranks[0].host == "localhost");
    CHECK(ranks[1].host == "localhost~2");
    CHECK(ranks[2].host == "localhost");
    CHECK(ranks[3].host == "n?1");
}

TEST_CASE("hosts that share a network are one, under the name of the first") {
    std::vector<Identity> ranks = {{.host = "job1", .network = "a 1"},
                                   {.host = "job2", .network = "a 1"},
                                   {.host = "job2", .network = "a 2"},
                                   {.host = "simulated", .network = ""},
                                   {.host = "another", .network = ""}};
    make_unique(ranks);
    CHECK(ranks[0].host == "job1");
    CHECK(ranks[0].names == std::vector<std::string>{"job2"});
    CHECK(ranks[1].host == "job1");
    CHECK(ranks[2].host == "job2");
    CHECK(ranks[3].host == "simulated");
    CHECK(ranks[4].host == "another");
}

TEST_CASE("the hosts of the ranks are reported before any record") {
    Recording recording;
    measure(recording, all_to_all, 3, "--sizes 64 --repeats 4 --budget 0");
    const Json first = recording.all_records().front();
    REQUIRE(first["kind"] == "ranks");
    CHECK(first["labels"].size() == 3);
    CHECK(first["host_index"] == Json({0, 0, 0}));
    CHECK(first["hosts"].size() == 1);
}

TEST_CASE("one_way refuses ranks that are on one host") {
    Recording recording;
    CHECK_THROWS_WITH_AS(measure(recording, one_way, 2, ""), doctest::Contains("on one host"),
                         Error);
}

TEST_CASE("two measurements on a host notice each other") {
    ConcurrentRuns first;
    CHECK(first.count() == 0);
    {
        ConcurrentRuns second;
        CHECK(second.count() == 1);
        CHECK(first.count() == 1);
    }
    ConcurrentRuns third;  // the first still runs, the second has ended
    CHECK(third.count() == 1);
}

TEST_CASE("labels: host names, with a number for several ranks on a host") {
    CHECK(rank_labels({"a", "b", "a", "c"}) == std::vector<std::string>{"a:0", "b", "a:1", "c"});
}
