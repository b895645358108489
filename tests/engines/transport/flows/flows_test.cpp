// Tests of the flow transport: rates of flows on planted links, the times of messages, and what a
// network's file may not be.
#include "transport/flows/flows.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "core/error.hpp"
#include "transport/flows/shares.hpp"
#include "transport/null.hpp"

using namespace assay;

namespace {

constexpr double rate = 1e9;              // B/s of each link
constexpr Nanoseconds latency = 100;      // ns of each link
constexpr std::size_t message = 1 << 20;  // B: 1048576 ns at that rate
constexpr int payload_tag = 64, small_tag = 17;

// Hosts on one switch: link i leads from host i to it, link n + i back. With `hops`, the route from
// host 0 also crosses that many links of its own.
flows::Network star(int hosts, int hops = 0) {
    flows::Network network;
    for (int i = 0; i < hosts; ++i) network.hosts.push_back("n" + std::to_string(i));
    network.links.assign(static_cast<std::size_t>(2 * hosts + hops), {rate, latency * 1e-9});
    for (int from = 0; from < hosts; ++from)
        for (int to = 0; to < hosts; ++to) {
            network.route_begin.push_back(network.route_links.size());
            if (from == to) continue;
            network.route_links.push_back(from);
            for (int hop = 0; from == 0 && hop < hops; ++hop)
                network.route_links.push_back(2 * hosts + hop);
            network.route_links.push_back(hosts + to);
        }
    network.route_begin.push_back(network.route_links.size());
    return network;
}

void wait_for(Transport& transport, Ticket ticket) {
    for (std::vector<Ticket> completed; std::ranges::find(completed, ticket) == completed.end();)
        transport.poll(completed);
}

// A file of this text, which is removed at the end.
struct Written {
    char path[32] = "/tmp/assay-flows-XXXXXX";

    explicit Written(const std::string& text) {
        close(mkstemp(path));
        std::ofstream(path) << text;
    }
    ~Written() { unlink(path); }
    Written(const Written&) = delete;
    Written& operator=(const Written&) = delete;
};

}  // namespace

TEST_CASE("the flows of a full link share it by their weights, and the others take what is left") {
    const flows::Network network = star(4, 2);
    flows::Shares shares(network);
    std::vector<std::uint32_t> ended;
    shares.start(0, 0, 3, 1e6, 0);  // four links: half the weight of two
    shares.start(1, 1, 3, 1e6, 0);
    shares.start(2, 1, 2, 1e6, 0);  // shares link 1 with the flow before
    shares.advance(0, ended);
    CHECK(shares.rate_of(1) == doctest::Approx(rate / 2));
    CHECK(shares.rate_of(2) == doctest::Approx(rate / 2));
    CHECK(shares.rate_of(0) == doctest::Approx(rate / 2));
    shares.start(3, 2, 3, 1e6, 0);
    shares.advance(0, ended);
    // Link 4 + 3 is full first: 1 + 2 + 2 parts.
    CHECK(shares.rate_of(0) == doctest::Approx(rate / 5));
    CHECK(shares.rate_of(1) == doctest::Approx(rate * 2 / 5));
    CHECK(shares.rate_of(3) == doctest::Approx(rate * 2 / 5));
    CHECK(shares.rate_of(2) == doctest::Approx(rate * 3 / 5));
}

TEST_CASE("a flow that ends leaves its rate to the others") {
    const flows::Network network = star(3);
    flows::Shares shares(network);
    std::vector<std::uint32_t> ended;
    shares.start(0, 0, 2, 1e6, 0);
    shares.start(1, 1, 2, 2e6, 0);
    shares.advance(0, ended);
    REQUIRE(shares.next() == 2'000'000);
    shares.advance(2'000'000, ended);
    CHECK(ended == std::vector<std::uint32_t>{0});
    CHECK(shares.rate_of(1) == doctest::Approx(rate));
    CHECK(shares.next() == 3'000'000);
}

// The definition of weighted max-min fairness, which names one set of rates: no link carries more
// than its rate, and each flow has a full link on which no flow has more for its weight.
TEST_CASE("the rates of flows that start and end at random are fair") {
    constexpr int hosts = 12;
    flows::Network network = star(hosts, 3);
    std::mt19937 random(7);
    for (auto& link : network.links) link.rate = rate * (1 + random() % 5);
    struct Way {
        int from, to;
    };
    std::map<std::uint32_t, Way> on_way;
    flows::Shares shares(network);
    Nanoseconds time = 0;
    std::size_t all_ended = 0, compared = 0;
    for (std::uint32_t message = 0; message < 2000; ++message) {
        const int from = static_cast<int>(random() % hosts);
        const int to = (from + 1 + static_cast<int>(random() % (hosts - 1))) % hosts;
        shares.start(message, from, to, 1e5 * (1 + random() % 20), time);
        on_way[message] = {from, to};
        do {  // at most 200 flows: the rates are solved after each change
            std::vector<std::uint32_t> ended;
            shares.advance(time, ended);
            for (const std::uint32_t number : ended) REQUIRE(on_way.erase(number) == 1);
            all_ended += ended.size();
            if (on_way.size() > 200) time = shares.next();
        } while (on_way.size() > 200);

        std::vector<double> used(network.links.size()), highest(network.links.size());
        for (const auto& [number, way] : on_way)
            for (const std::int32_t link : network.route(way.from, way.to)) {
                const auto i = static_cast<std::size_t>(link);
                const double share = shares.rate_of(number);
                used[i] += share;
                highest[i] = std::max(highest[i], share / network.weight(way.from, way.to));
            }
        for (std::size_t i = 0; i < used.size(); ++i)
            REQUIRE(used[i] <= network.links[i].rate * (1 + 1e-9));
        for (const auto& [number, way] : on_way) {
            const double level = shares.rate_of(number) / network.weight(way.from, way.to);
            REQUIRE(std::ranges::any_of(network.route(way.from, way.to), [&](std::int32_t link) {
                const auto i = static_cast<std::size_t>(link);
                return used[i] >= network.links[i].rate * (1 - 1e-9) &&
                       level >= highest[i] * (1 - 1e-9);
            }));
            ++compared;
        }
    }
    CHECK(all_ended > 1500);
    CHECK(compared > 100'000);
}

TEST_CASE("a message takes the latency of its links and its bytes over the rate") {
    run_flow_ranks(star(2), [](Transport& transport) {
        if (transport.rank() == 0)
            wait_for(transport, transport.send(nullptr, message, 1, payload_tag));
        else wait_for(transport, transport.receive(nullptr, message, 0, payload_tag));
        const Nanoseconds expected = 2 * latency + static_cast<Nanoseconds>(message * 1e9 / rate);
        CHECK(transport.clock() == doctest::Approx(expected).epsilon(1e-5));
        CHECK(transport.host() == (transport.rank() == 0 ? "n0" : "n1"));
    });
}

TEST_CASE("small messages keep their contents and their order, whichever side posts first") {
    run_flow_ranks(star(2), [](Transport& transport) {
        for (int value = 0; value < 20; ++value) {
            // A long message is followed by short ones, which do not overtake it.
            std::array<int, 1000> content{};
            const std::size_t bytes = value == 3 ? sizeof content : sizeof(int);
            content[0] = value;
            if (transport.rank() == 0) {
                wait_for(transport, transport.send(content.data(), bytes, 1, small_tag));
                continue;
            }
            wait_for(transport, transport.receive(content.data(), sizeof content, 0, small_tag));
            CHECK(content[0] == value);
        }
    });
}

TEST_CASE("a rank takes twelve payloads at once, and the others wait") {
    constexpr int senders = 14;
    std::array<Nanoseconds, senders + 1> sent{};
    run_flow_ranks(star(senders + 1), [&](Transport& transport) {
        if (transport.rank() > 0) {
            wait_for(transport, transport.send(nullptr, message, 0, payload_tag));
            sent[static_cast<std::size_t>(transport.rank())] = transport.clock();
            return;
        }
        std::vector<Ticket> completed;
        for (int rank = 1; rank <= senders; ++rank)
            transport.receive(nullptr, message, rank, payload_tag);
        while (completed.size() < senders) transport.poll(completed);
    });
    std::ranges::sort(sent);
    const double alone = message * 1e9 / rate;
    CHECK(sent[1] == doctest::Approx(12 * alone).epsilon(1e-3));
    CHECK(sent[12] == sent[1]);
    CHECK(sent[13] == doctest::Approx(14 * alone).epsilon(1e-3));
}

TEST_CASE("time passes for ranks that wait for nothing, and a wake is kept to the nanosecond") {
    run_flow_ranks(star(2), [](Transport& transport) {
        std::vector<Ticket> completed;
        transport.wake_at(12'345);
        transport.poll(completed);
        CHECK(transport.clock() == 12'345);
        while (transport.clock() < 10'000'000'000) transport.poll(completed);
        CHECK(completed.empty());
    });
}

TEST_CASE("the error of a rank ends the others, and is thrown") {
    const auto body = [](Transport& transport) {
        if (transport.rank() == 1) transport.begin_sum({});
        std::vector<Ticket> completed;
        for (;;) transport.poll(completed);
    };
    CHECK_THROWS_WITH_AS(run_flow_ranks(star(3), body), "flows simulate event building alone",
                         Error);
    CHECK_THROWS_AS(run_flow_ranks(star(3),
                                   [](Transport& transport) {
                                       if (transport.rank() == 1) transport.abort(2);
                                       std::vector<Ticket> completed;
                                       for (;;) transport.poll(completed);
                                   }),
                    Aborted);
}

TEST_CASE("a network's file that is cut short, or names no link, is refused with its line") {
    const std::string good =
        "assay-flows 1\nhosts 2\na\nb\nlinks 2\n1e9 1e-7\n1e9 1e-7\nroutes\n\n0\n1\n\n";
    const flows::Network network = flows::Network::read(Written(good).path);
    CHECK(network.size() == 2);
    CHECK(network.route(1, 0).front() == 1);
    const auto refusal = [](const std::string& text) {
        const Written file(text);
        try {
            flows::Network::read(file.path);
        } catch (const Error& error) {
            return std::string(error.what()).substr(std::strlen(file.path));
        }
        return std::string("none");
    };
    CHECK(refusal(good.substr(0, good.size() - 3)) == ", line 11: the file ends here");
    CHECK(refusal("assay-flows 2\n") == ", line 1: \"assay-flows 1\" is expected");
    std::string other = good;
    other.replace(other.rfind("1\n\n"), 1, "2");
    CHECK(refusal(other) == ", line 11: there is no link 2");
    other.replace(other.rfind("2\n\n"), 1, "");
    CHECK(refusal(other) == ", line 11: two hosts without a route");
    CHECK(refusal("assay-flows 1\nhosts 0\n") ==
          ", line 2: \"hosts\" and a number up to 4096 are expected");
    CHECK(refusal("assay-flows 1\nhosts 1\na\nlinks 1\n0 0\n") ==
          ", line 5: a rate and a latency are expected");
}
