// Tests of the threads that receive datagrams, and of the evaluation of their counts. The test
// sends the datagrams over loopback.
#include "node/udp/receive_threads.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "node/udp/results.hpp"

using namespace assay;
using namespace assay::node;

namespace {

constexpr std::uint64_t run_number = 77;

struct Wire {
    Hello hello{run_number, 200, 1000, 3, 1000, 1, "test"};
    std::vector<UdpSocket> sockets{};
    std::vector<Address> ports{};
    UdpSocket out{resolve("127.0.0.1", 0).front()};

    Wire() {
        for (int i = 0; i < 2; ++i) {
            Address any = resolve("127.0.0.1", 0).front();
            UdpSocket& socket = sockets.emplace_back(any);
            socket.enlarge(true, 1 << 20);
            socket.bind(any);
            getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&any.storage), &any.length);
            ports.push_back(any);
        }
    }
    void send_message(std::uint32_t stream, std::uint64_t sequence,
                      const std::function<void(std::vector<std::byte>&)>& change_bytes = {}) {
        auto bytes = payload_of(run_number, hello.size);
        DataHeader{stream, run_number, sequence, static_cast<std::uint64_t>(now())}.put(
            bytes.data());
        if (change_bytes) change_bytes(bytes);
        send_bytes(stream % 2, bytes);
    }
    void send_bytes(std::size_t port, const std::vector<std::byte>& bytes) {
        REQUIRE(sendto(out.fd(), bytes.data(), bytes.size(), 0, ports[port].get(),
                       ports[port].length) == static_cast<ssize_t>(bytes.size()));
    }
};

void wait_until(const std::function<bool()>& done) {
    for (int i = 0; i < 12000 && !done(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(done());
}

}  // namespace

TEST_CASE("messages are counted by stream, and foreign datagrams are counted apart") {
    Wire wire;
    ReceiveThreads threads(wire.sockets, wire.hello, true, 2, -1);
    for (std::uint64_t m = 0; m < 100; ++m)
        if (m % 10 != 3) wire.send_message(0, m);                        // ten lost
    for (std::uint64_t m = 0; m < 50; ++m) wire.send_message(1, m ^ 1);  // pairwise exchanged
    wire.send_message(1, 20);                                            // once more
    wire.send_message(2, 0, [](auto& b) { b[150] ^= std::byte{4}; });
    wire.send_message(
        2, 1, [](auto& b) { DataHeader{2, 78, 1, 0}.put(b.data()); });  // another run_number's
    wire.send_message(2, 1, [](auto& b) {
        DataHeader{2, run_number, 5000, 0}.put(b.data());
    });  // beyond what was announced
    wire.send_message(2, 1, [](auto& b) {
        DataHeader{1, run_number, 400, 0}.put(b.data());
    });  // a stream of the other port
    wire.send_message(2, 1, [](auto& b) { b.resize(199); });
    wire.send_bytes(0, {});
    wire.send_message(0, 100);
    wire.send_message(1, 50);
    wait_until([&] { return threads.received() == 90 + 50 + 1 + 2; });
    threads.stop();
    const Arrivals a = threads.arrivals();
    CHECK(a.streams[0].unique == 91);
    CHECK(a.streams[0].next == 101);
    CHECK(a.streams[1].unique == 51);
    CHECK(a.streams[1].duplicates == 1);
    CHECK(a.streams[1].reordered == 25);
    CHECK(a.foreign == 5);
    CHECK(a.corrupted == 1);
    REQUIRE(a.corruption);
    CHECK(a.corruption->message == 0);
    CHECK(a.corruption->offset == 150);
    CHECK((a.corruption->expected ^ a.corruption->observed) == 4);
    CHECK(a.first > 0);
    CHECK(a.last >= a.first);
}

namespace {

// A reception of 2 streams with 1000 messages of 1000 bytes each in 1 s; 10 messages of the second
// stream are lost.
Reception reception_with_10_lost() {
    Reception r;
    r.hello = {run_number, 1000, 1000, 2, 1e6, 1, "sender"};
    r.end = End{run_number, {1000, 1000}, 2e6, 0, 0, true};
    r.arrivals.streams = {{1000, 0, 0, 0, 1000, 0}, {990, 2, 4, 0, 1000, 0}};
    r.arrivals.unique = 1990;
    r.arrivals.first_batch = 10;
    r.arrivals.first = 1'000'000'000;
    r.arrivals.last = 1'990'000'000;
    return r;
}

}  // namespace

TEST_CASE(
    "shares are of the sent messages; the bandwidth excludes duplicates and the first batch") {
    const ReceptionResult result = evaluate(reception_with_10_lost());
    CHECK(result.expected == 2000);
    CHECK(result.lost == 10);
    CHECK(result.share(result.lost) == doctest::Approx(0.005));
    CHECK(result.share(result.duplicates) == doctest::Approx(0.001));
    CHECK(result.share(result.reordered) == doctest::Approx(0.002));
    CHECK(result.bandwidth == doctest::Approx(2e6));  // 1980 messages in 0.99 s
    CHECK(result.losses.unattributed == 10);
    CHECK(result.bandwidth_doubt.empty());
    CHECK(result.loss_doubt.empty());
}

TEST_CASE("messages lost at the end count: the sender's report decides, not the highest received") {
    Reception r = reception_with_10_lost();
    r.arrivals.streams = {{400, 0, 0, 0, 400, 0}, {0, 0, 0, 0, 0, 0}};
    r.arrivals.unique = 400;
    CHECK(evaluate(r).lost == 1600);
}

TEST_CASE("if the sender falls silent, the loss is counted up to the last message, with a doubt") {
    Reception r = reception_with_10_lost();
    r.end.reset();
    r.arrivals.streams[1].next = 995;
    const ReceptionResult result = evaluate(r);
    CHECK(result.expected == 1995);
    CHECK(result.lost == 5);
    CHECK(result.loss_doubt.find("fell silent") != std::string::npos);
    CHECK_FALSE(result.bandwidth_doubt.empty());
}

TEST_CASE(
    "a sender below the rate raises doubt on the bandwidth; a loss at lower load still counts") {
    Reception r = reception_with_10_lost();
    r.end->rate = 1.5e6;
    ReceptionResult result = evaluate(r);
    CHECK(result.bandwidth_doubt.find("the sender could only send 0.012 of 0.016 Gbit/s") !=
          std::string::npos);
    CHECK(result.loss_doubt.empty());
    r.arrivals.streams[1].unique = 1000;
    r.arrivals.unique = 2000;
    result = evaluate(r);
    CHECK(result.lost == 0);
    CHECK_FALSE(result.loss_doubt.empty());  // no loss at a lower load proves nothing
}

TEST_CASE("a sender that stopped half-way raises doubt on all values") {
    Reception r = reception_with_10_lost();
    r.end->sent = {500, 500};
    r.arrivals.streams = {{500, 0, 0, 0, 500, 0}, {500, 0, 0, 0, 500, 0}};
    r.arrivals.unique = 1000;
    const ReceptionResult result = evaluate(r);
    CHECK(result.lost == 0);
    CHECK(result.bandwidth_doubt.find("stopped after 50 %") != std::string::npos);
    CHECK_FALSE(result.loss_doubt.empty());
}

TEST_CASE("messages dropped in the sender's queue are not attributed to the receiver") {
    Reception r = reception_with_10_lost();
    r.end->dropped = 12;
    ReceptionResult result = evaluate(r);
    CHECK(result.losses.sender == 10);
    CHECK_FALSE(result.loss_doubt.empty());
    r.socket_drops = 1;
    r.arrivals.largest_block = 7;  // one block of up to seven messages
    result = evaluate(r);
    CHECK(result.losses.socket == 7);
    CHECK(result.losses.sender == 3);
    CHECK(result.loss_doubt.empty());  // some messages were lost at this receiver
}

TEST_CASE("if nothing arrives, everything is lost") {
    Reception r = reception_with_10_lost();
    r.arrivals = {};
    r.arrivals.streams.resize(2);
    const ReceptionResult result = evaluate(r);
    CHECK(result.share(result.lost) == 1);
    CHECK(result.bandwidth == 0);
}
