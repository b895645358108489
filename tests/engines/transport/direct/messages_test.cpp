// Tests of messages, one-sided transfers and collectives. Each case runs over every transport
// without MPI.
#include <atomic>

#include "core/error.hpp"
#include "ranks.hpp"

using namespace planted;

namespace {

void barrier(Transport& transport) {
    double value = 0;
    transport.begin_max({&value, 1});
    while (!transport.test_collective()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("messages of one tag arrive in order, whichever side posts first, of any size") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        run(name, 2, [](PeerTransport& transport) {
            const std::size_t sizes[] = {0, 1, 8, 4096, 70'000, 3'000'001, 16, 1 << 20, 5};
            const int peer = 1 - transport.rank();
            unsigned seed = 0;
            for (const std::size_t size : sizes) {
                ++seed;
                const auto sent = pattern(size, 2 * seed + static_cast<unsigned>(transport.rank()));
                const auto expected = pattern(size, 2 * seed + static_cast<unsigned>(peer));
                std::vector<std::byte> received(size);
                const bool first = (seed + static_cast<unsigned>(transport.rank())) % 2 == 0;
                std::vector<Ticket> tickets;
                if (first) tickets.push_back(transport.receive(received.data(), size, peer, 7));
                tickets.push_back(transport.send(sent.data(), size, peer, 7));
                if (!first) tickets.push_back(transport.receive(received.data(), size, peer, 7));
                wait_for(transport, tickets);
                CHECK(received == expected);
            }
        });
    }
}

TEST_CASE("a request does not wait behind the data that was posted before it") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        run(name, 2, [&name](PeerTransport& transport) {
            CAPTURE(name);
            constexpr std::size_t messages = 6, size = 1 << 20;
            const auto data = pattern(size, 3);
            const auto request = pattern(64, 4);
            std::vector<Ticket> posted;
            if (transport.rank() == 0) {
                for (std::size_t i = 0; i < messages; ++i)
                    posted.push_back(
                        transport.send(data.data(), size, 1, 70 + static_cast<int>(i)));
                posted.push_back(transport.send(request.data(), request.size(), 1, 18));
                wait_for(transport, posted);
                return;
            }
            std::vector<std::vector<std::byte>> received(messages, std::vector<std::byte>(size));
            std::vector<std::byte> asked(request.size());
            for (std::size_t i = 0; i < messages; ++i)
                posted.push_back(
                    transport.receive(received[i].data(), size, 0, 70 + static_cast<int>(i)));
            const Ticket asked_ticket = transport.receive(asked.data(), asked.size(), 0, 18);
            // What completes first may complete in one poll with more.
            std::vector<Ticket> completed;
            poll_until(transport, completed, [&] { return !completed.empty(); });
            CHECK(std::ranges::find(completed, asked_ticket) != completed.end());
            poll_until(transport, completed, [&] { return completed.size() == messages + 1; });
            CHECK(asked == request);
            for (const auto& message : received) CHECK(message == data);
        });
    }
}

TEST_CASE("tags do not mix, and a message may be shorter than its receive") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        run(name, 2, [](PeerTransport& transport) {
            if (transport.rank() == 0) {
                const int a = 1, b = 2, c = 3;
                wait_for(transport,
                         {transport.send(&a, sizeof a, 1, 10), transport.send(&b, sizeof b, 1, 20),
                          transport.send(&c, sizeof c, 1, 10)});
                return;
            }
            int values[4] = {};
            wait_for(transport, {transport.receive(&values[0], 2 * sizeof(int), 0, 20)});
            CHECK(values[0] == 2);
            CHECK(values[1] == 0);
            wait_for(transport, {transport.receive(&values[2], sizeof(int), 0, 10),
                                 transport.receive(&values[3], sizeof(int), 0, 10)});
            CHECK(values[2] == 1);
            CHECK(values[3] == 3);
        });
    }
}

TEST_CASE("many messages between four ranks at once, also from a rank to itself") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        run(name, 4, [](PeerTransport& transport) {
            constexpr int rounds = 40;
            constexpr std::size_t size = 20'000;
            const auto rank = static_cast<unsigned>(transport.rank());
            std::vector<std::vector<std::byte>> sent, received;
            std::vector<Ticket> tickets;
            sent.reserve(rounds * 4);
            received.reserve(rounds * 4);
            for (unsigned round = 0; round < rounds; ++round)
                for (unsigned peer = 0; peer < 4; ++peer) {
                    auto& in = received.emplace_back(size);
                    auto& out = sent.emplace_back(pattern(size, 1000 * rank + 10 * round + peer));
                    const int tag = static_cast<int>(round % 3), to = static_cast<int>(peer);
                    tickets.push_back(transport.receive(in.data(), size, to, tag));
                    tickets.push_back(transport.send(out.data(), size, to, tag));
                }
            wait_for(transport, tickets);
            for (unsigned round = 0; round < rounds; ++round)
                for (unsigned peer = 0; peer < 4; ++peer)
                    CHECK(received[round * 4 + peer] ==
                          pattern(size, 1000 * peer + 10 * round + rank));
        });
    }
}

TEST_CASE("put and get reach the window; collectives reduce, gather and broadcast") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        run(name, 5, [](PeerTransport& transport) {
            constexpr std::size_t size = 100'000;
            const int rank = transport.rank(), next = (rank + 1) % 5, previous = (rank + 4) % 5;
            std::byte* window = transport.create_window(2 * size);
            const auto own_data = pattern(size, static_cast<unsigned>(rank));
            std::ranges::copy(own_data, window + size);
            barrier(transport);
            transport.put(own_data.data(), size, next, 0);
            transport.flush(next);
            std::vector<std::byte> read(size);
            wait_for(transport, {transport.get(read.data(), size, next, size)});
            CHECK(read == pattern(size, static_cast<unsigned>(next)));
            barrier(transport);
            CHECK(std::vector(window, window + size) ==
                  pattern(size, static_cast<unsigned>(previous)));
            transport.free_window();
            double sum[] = {1, static_cast<double>(rank)}, largest = -rank;
            transport.begin_sum(sum);
            while (!transport.test_collective()) std::this_thread::yield();
            CHECK(sum[0] == 5);
            CHECK(sum[1] == 10);
            transport.begin_max({&largest, 1});
            while (!transport.test_collective()) std::this_thread::yield();
            CHECK(largest == 0);
            const auto all = transport.gather(std::string(static_cast<std::size_t>(rank), 'x'));
            if (rank == 0) CHECK(all == std::vector<std::string>{"", "x", "xx", "xxx", "xxxx"});
            std::string text = rank == 0 ? std::string(300'000, 'w') : "";
            transport.broadcast(text);
            CHECK(text.size() == 300'000);
        });
    }
}

TEST_CASE("a sender waits for a rank that posts no receive, and other tags still pass") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        std::atomic<bool> is_checked = false;
        run(name, 2, [&](PeerTransport& transport) {
            constexpr int messages = 12;
            constexpr std::size_t size = 4U << 20;  // 48 MiB in all, of which 16 MiB are held
            std::vector<std::byte> data(size);
            const char text = 'x';
            if (transport.rank() == 0) {
                std::vector<Ticket> tickets, done;
                for (int i = 0; i < messages; ++i)
                    tickets.push_back(transport.send(data.data(), size, 1, 1));
                const Nanoseconds begin = now();
                while (now() - begin < 300'000'000) transport.poll(done);
                CHECK(done.size() < messages);  // the rest waits
                is_checked = true;
                char answer = 0;
                const Ticket go = transport.send(&text, 1, 1, 2);
                const Ticket end = transport.receive(&answer, 1, 1, 3);
                poll_until(transport, done, [&] { return done.size() == messages + 2; });
                CHECK(std::ranges::find(done, go) != done.end());
                CHECK(std::ranges::find(done, end) != done.end());
                return;
            }
            std::vector<Ticket> done;
            while (!is_checked) transport.poll(done);
            for (int i = 0; i < messages; ++i)
                wait_for(transport, {transport.receive(data.data(), size, 0, 1)});
            char heard = 0;
            wait_for(transport, {transport.receive(&heard, 1, 0, 2)});
            CHECK(heard == 'x');
            wait_for(transport, {transport.send(&text, 1, 0, 3)});
        });
    }
}
