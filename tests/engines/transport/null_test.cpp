// Tests of the null transport: ranks as threads, with planted rates, delays and simulated time.
#include "transport/null.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

using namespace assay;

namespace {

void wait_for(Transport& transport, Ticket ticket) {
    for (std::vector<Ticket> completed; std::ranges::find(completed, ticket) == completed.end();)
        transport.poll(completed);
}

void wait_for_all(Transport& transport) {
    double value = 0;
    transport.begin_max({&value, 1});
    while (!transport.test_collective()) {
    }
}

}  // namespace

TEST_CASE("messages with one peer and tag arrive in order, whichever side posts first") {
    run_null_ranks(2, {}, [](Transport& transport) {
        int values[8];
        if (transport.rank() == 0) {
            std::iota(values, values + 8, 0);
            for (int& value : values)
                wait_for(transport, transport.send(&value, sizeof value, 1, 5));
        } else {
            for (int i = 0; i < 8; ++i) {
                wait_for(transport, transport.receive(&values[i], sizeof(int), 0, 5));
                CHECK(values[i] == i);
            }
        }
    });
}

TEST_CASE("put and get reach the window, collectives reduce, gather and broadcast") {
    run_null_ranks(3, {}, [](Transport& transport) {
        auto* window = reinterpret_cast<int*>(transport.create_window(64));
        const int rank = transport.rank(), next = (rank + 1) % 3;
        window[1] = 10 + rank;
        wait_for_all(transport);
        transport.put(&rank, sizeof rank, next, 0);
        transport.flush(next);
        int value = 0;
        wait_for(transport, transport.get(&value, sizeof value, next, sizeof(int)));
        CHECK(value == 10 + next);
        wait_for_all(transport);
        CHECK(window[0] == (rank + 2) % 3);
        double sum[] = {1, static_cast<double>(rank)};
        transport.begin_sum(sum);
        while (!transport.test_collective()) {
        }
        CHECK(sum[0] == 3);
        CHECK(sum[1] == 3);
        const auto all = transport.gather(std::string(static_cast<std::size_t>(rank), 'x'));
        if (rank == 0) CHECK(all == std::vector<std::string>{"", "x", "xx"});
        std::string word = rank == 0 ? "hello" : "";
        transport.broadcast(word);
        CHECK(word == "hello");
        transport.free_window();
    });
}

TEST_CASE("a message takes at least its size over the injected rate, plus the injected delay") {
    Faults faults;
    faults.transmit[0] = 10e6;
    faults.delay = 3'000'000;
    run_null_ranks(2, faults, [](Transport& transport) {
        std::vector<char> data(50'000);
        const Nanoseconds begin = now();
        if (transport.rank() == 0)
            wait_for(transport, transport.send(data.data(), data.size(), 1, 1));
        else wait_for(transport, transport.receive(data.data(), data.size(), 0, 1));
        wait_for_all(transport);
        CHECK(now() - begin >= 5'000'000 + (transport.rank() == 1 ? 3'000'000 : 0));
    });
}

TEST_CASE("simulated time passes only while every rank waits, to the next completion") {
    Faults faults{.simulated_time = true};
    faults.transmit[0] = 10e6;
    faults.delay = 3'000'000;
    run_null_ranks(2, faults, [](Transport& transport) {
        std::vector<char> data(50'000);
        const Nanoseconds begin = transport.clock();
        if (transport.rank() == 0)
            wait_for(transport, transport.send(data.data(), data.size(), 1, 1));
        else wait_for(transport, transport.receive(data.data(), data.size(), 0, 1));
        CHECK(transport.clock() - begin == (transport.rank() == 0 ? 5'000'000 : 8'000'000));
        wait_for_all(transport);
        std::vector<Ticket> none;
        transport.poll(none);  // nothing is in flight: time passes nevertheless
        CHECK(none.empty());
        CHECK(transport.clock() - begin > 8'000'000);
    });
}

TEST_CASE("abort ends every rank") {
    std::atomic<int> ended{0};
    CHECK_THROWS_AS(run_null_ranks(3, {},
                                   [&](Transport& transport) {
                                       try {
                                           if (transport.rank() == 1) transport.abort(2);
                                           wait_for_all(transport);
                                       } catch (const Aborted&) {
                                           ++ended;
                                           throw;
                                       }
                                   }),
                    Aborted);
    CHECK(ended == 3);
}
