// Tests of rounds of flows over the null transport: the measured rates are the planted ones. They
// are measured over the time in which all flows run. Time is simulated, so a busy machine changes
// nothing.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <map>
#include <mutex>

#include "core/error.hpp"
#include "network/saturation/calls.hpp"
#include "network/saturation/flows.hpp"
#include "network/saturation/ping_pong.hpp"
#include "ranks.hpp"

using namespace assay;
using namespace assay::network;
using namespace assay::network::saturate;

namespace {

constexpr double tolerance = 0.01;  // the interpolation at the ends of the common time

struct Measured {
    double window = 0;
    std::map<int, double> rates;
    std::uint64_t messages = 0;
};

Measured measure(int ranks, const Faults& faults, const std::string& line, int inflight = 2) {
    Measured measured;
    std::mutex mutex;
    on_ranks(ranks, faults, [&](Session& session) {
        const Outcome outcome = run_flows(session, read_round(line, session.size()), inflight);
        const std::lock_guard lock(mutex);
        measured.window = outcome.window;
        for (const FlowRate& flow : outcome.flows) {
            measured.rates[flow.flow] = flow.rate;
            measured.messages += flow.messages;
        }
    });
    return measured;
}

std::string refusal(const std::string& line, int ranks = 4) {
    try {
        read_round(line, ranks);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a flow's rate is that of its slower side") {
    Faults faults{.rate = 20e6, .simulated_time = true};
    faults.transmit[2] = 5e6;
    const Measured measured =
        measure(4, faults, R"({"flows": [[0,1],[2,3]], "size": 65536, "seconds": 0.4})");
    CHECK(measured.window > 0.2);
    CHECK(measured.rates.at(0) == doctest::Approx(20e6).epsilon(tolerance));
    CHECK(measured.rates.at(1) == doctest::Approx(5e6).epsilon(tolerance));
}

TEST_CASE("flows into one rank share its receive rate") {
    Faults faults{.rate = 40e6, .simulated_time = true};
    faults.receive[0] = 10e6;
    const Measured measured =
        measure(3, faults, R"({"flows": [[1,0],[2,0]], "size": 65536, "seconds": 0.4})");
    CHECK(measured.rates.at(0) + measured.rates.at(1) == doctest::Approx(10e6).epsilon(tolerance));
}

TEST_CASE("both directions, a ring and idle ranks end without pending operations") {
    for (const char* flows : {"[[0,1],[1,0]]", "[[0,1],[1,2],[2,3],[3,0]]"})
        for (const int inflight : {1, 3}) {
            const Measured measured = measure(
                5, {.rate = 1e9, .simulated_time = true},
                fmt::format(R"({{"flows": {}, "size": 4096, "seconds": 0.05}})", flows), inflight);
            CHECK(measured.window > 0);
            CHECK(measured.messages > 4);
        }
}

TEST_CASE("an all-to-all reaches each rank's receive rate") {
    const Measured measured = measure(
        3, {.rate = 20e6, .simulated_time = true},
        R"({"flows": [[0,1],[0,2],[1,0],[1,2],[2,0],[2,1]], "size": 65536, "seconds": 0.4})");
    double sum = 0;
    for (const auto& [flow, rate] : measured.rates) sum += rate;
    CHECK(sum == doctest::Approx(3 * 20e6).epsilon(tolerance));
}

TEST_CASE("a round without a common time has no rates") {
    Faults faults{.rate = 1e9, .simulated_time = true};
    faults.transmit[2] = 1e5;  // its first message takes longer than the round
    const Measured measured =
        measure(4, faults, R"({"flows": [[0,1],[2,3]], "size": 65536, "seconds": 0.02})");
    CHECK(measured.window <= 0);
}

TEST_CASE("ping-pong measures the time of a message") {
    std::vector<PingPongTimes> times;
    on_ranks(3, {.rate = 10e6, .simulated_time = true}, [&](Session& session) {
        std::vector<PingPongTimes> own_times;
        std::uint64_t bytes_sent_off_host = 0;
        CHECK(run_ping_pong(
            session,
            read_round(R"({"ping_pong": [[0,1],[0,2]], "sizes": [8,100000], "count": 3})", 3),
            own_times, bytes_sent_off_host));
        if (session.rank() == 0) times = own_times;
    });
    REQUIRE(times.size() == 4);
    for (const PingPongTimes& pair : times)
        if (pair.size == 100000)
            CHECK(pair.samples.front() == doctest::Approx(0.01).epsilon(tolerance).scale(0));
}

TEST_CASE("an invalid round is refused with the reason") {
    CHECK(refusal(R"({"flows": [[0,1]], "size": 65536, "seconds": 0.2})").empty());
    CHECK(refusal("nonsense").find("not a round") == 0);
    CHECK(refusal(R"({"flows": [[0,0]], "size": 65536, "seconds": 1})").find("itself") !=
          std::string::npos);
    CHECK(refusal(R"({"flows": [[0,9]], "size": 65536, "seconds": 1})").find("rank 9 of 4") !=
          std::string::npos);
    CHECK(refusal(R"({"flows": [[0,1],[0,1]], "size": 65536, "seconds": 1})").find("twice") !=
          std::string::npos);
    CHECK(refusal(R"({"flows": [[0,1]], "size": 0, "seconds": 1})").find("0 bytes") !=
          std::string::npos);
    CHECK(refusal(R"({"flows": [[0,1]], "size": 8, "seconds": -1})").find("seconds") !=
          std::string::npos);
    CHECK(refusal("{}").find("neither") != std::string::npos);
}

TEST_CASE("a round of calls needs a pause for each size") {
    CHECK(
        refusal(R"({"calls": [[0,1]], "sizes": [1,8], "pauses": [0.1,0.2], "count": 3})").empty());
    CHECK(refusal(R"({"calls": [[0,1]], "sizes": [1,8], "pauses": [0.1], "count": 3})")
              .find("a pause for each size") != std::string::npos);
    CHECK(refusal(R"({"calls": [[0,1]], "sizes": [1], "pauses": [0], "count": 3})")
              .find("a pause of 0 s") != std::string::npos);
    CHECK(refusal(R"({"calls": [[0,1]], "sizes": [1], "count": 3})").find("pauses") !=
          std::string::npos);
}

TEST_CASE("a transport without calls of MPI measures none") {
    std::vector<CallTimes> times;
    on_ranks(2, {.rate = 1e9}, [&](Session& session) {
        std::vector<CallTimes> own_times;
        std::uint64_t bytes_sent_off_host = 0;
        CHECK(run_calls(
            session,
            read_round(R"({"calls": [[0,1]], "sizes": [8], "pauses": [0.1], "count": 3})", 2),
            own_times, bytes_sent_off_host));
        if (session.rank() == 0) times = own_times;
    });
    CHECK(times.empty());
}

TEST_CASE("without calls of MPI a signal at one rank ends the study at every rank") {
    std::array<bool, 2> goes_on{true, true};
    on_ranks(
        2, {.simulated_time = true},
        [&](Session& session) {
            // Simulated time advances only when rank 0 waits too: rank 0 has not seen the signal.
            const Nanoseconds signal_time = session.transport.clock() + 1'000'000;
            std::vector<Ticket> completed;
            while (session.rank() == 1 && session.transport.clock() < signal_time) {
                session.transport.wake_at(signal_time);
                session.transport.poll(completed);
            }
            if (session.rank() == 1) std::raise(SIGTERM);
            std::vector<CallTimes> times;
            std::uint64_t bytes_sent_off_host = 0;
            goes_on[static_cast<std::size_t>(session.rank())] = run_calls(
                session,
                read_round(R"({"calls": [[0,1]], "sizes": [8], "pauses": [0.1], "count": 3})", 2),
                times, bytes_sent_off_host);
        },
        long_limits, Signals::planted);
    CHECK_FALSE(goes_on[0]);
    CHECK_FALSE(goes_on[1]);
}
