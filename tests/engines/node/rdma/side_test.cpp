// Tests of both sides of an RDMA measurement, as threads with a socket pair and fake devices in
// memory: all data arrive, counts are right, and planted faults are found and reported on both
// sides.
#include "node/rdma/side.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

using namespace assay;
using namespace assay::rdma;

namespace {

struct Faults {
    // Numbers of messages.
    std::uint64_t flip_at = ~0ull;   // gets a flipped bit
    std::uint64_t drop_at = ~0ull;   // does not arrive, but is reported as complete
    std::uint64_t fail_at = ~0ull;   // completes with an error
    std::uint64_t stall_at = ~0ull;  // this and all later messages never complete
};

class FakeDevice;

// The state that the two devices share. Messages are numbered in the order of posting.
struct Wire {
    std::mutex lock;
    Faults faults;
    std::uint64_t posted = 0;
    FakeDevice* ends[2] = {};
};

// A device that completes everything at once, under the lock.
class FakeDevice final : public Endpoint {
public:
    FakeDevice(Wire& wire, int index, const Workload& w)
        : wire_(wire),
          index_(index),
          bytes_(Layout::memory(w)),
          receives_(static_cast<std::size_t>(w.qps)),
          unmatched_messages_(receives_.size()) {
        wire.ends[index] = this;
    }
    Json address() const override { return {}; }
    void connect(const Json&) override {}
    std::byte* memory() override { return bytes_.data(); }
    int mtu() const override { return 4096; }
    std::string status_text(int) const override { return "planted error"; }

    void post(int qp, Op op, std::size_t local, std::size_t remote, std::size_t size,
              bool signalled) override {
        const std::scoped_lock guard(wire_.lock);
        const std::uint64_t number = wire_.posted++;
        if (number >= wire_.faults.stall_at) return;
        FakeDevice& other = *wire_.ends[1 - index_];
        std::vector<std::byte> message(
            op == Op::read ? &other.bytes_.at(remote) : &bytes_.at(local),
            (op == Op::read ? &other.bytes_.at(remote) : &bytes_.at(local)) + size);
        if (number == wire_.faults.flip_at) message[size / 2] ^= std::byte{4};
        if (number != wire_.faults.drop_at) {
            if (op == Op::send) {
                other.unmatched_messages_[static_cast<std::size_t>(qp)].push_back(message);
                other.deliver(qp);
            } else {
                std::memcpy(op == Op::read ? &bytes_.at(local) : &other.bytes_.at(remote),
                            message.data(), size);
            }
        }
        const bool failed = number == wire_.faults.fail_at;
        if (signalled || failed) completions_.push_back({qp, false, failed ? 12 : 0});
    }
    void post_receive(int qp, std::size_t local, std::size_t size) override {
        const std::scoped_lock guard(wire_.lock);
        receives_[static_cast<std::size_t>(qp)].push_back({local, size});
        deliver(qp);
    }
    int poll(std::span<Completion> completions) override {
        const std::scoped_lock guard(wire_.lock);
        int n = 0;
        for (; !completions_.empty() && n < static_cast<int>(completions.size()); ++n) {
            completions[static_cast<std::size_t>(n)] = completions_.front();
            completions_.pop_front();
        }
        return n;
    }

private:
    struct Receive {
        std::size_t local, size;
    };
    void deliver(int qp) {
        auto& slots = receives_[static_cast<std::size_t>(qp)];
        auto& messages = unmatched_messages_[static_cast<std::size_t>(qp)];
        while (!slots.empty() && !messages.empty()) {
            REQUIRE(messages.front().size() == slots.front().size);
            std::memcpy(&bytes_.at(slots.front().local), messages.front().data(),
                        messages.front().size());
            completions_.push_back({qp, true, 0});
            slots.pop_front();
            messages.pop_front();
        }
    }

    Wire& wire_;
    int index_;
    std::vector<std::byte> bytes_;
    std::vector<std::deque<Receive>> receives_;
    std::vector<std::deque<std::vector<std::byte>>> unmatched_messages_;
    std::deque<Completion> completions_;
};

struct SideResults {
    std::vector<Result> results;
    std::string error;
};

// Measures every operation and size of a workload. Results: [0] of the client, [1] of the server.
std::array<SideResults, 2> measure_both_sides(const Workload& w, const Faults& faults = {},
                                              double limit = 5) {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    Wire wire{.lock = {}, .faults = faults};
    FakeDevice client(wire, 0, w), server(wire, 1, w);
    std::array<SideResults, 2> sides;
    const auto work = [&](int index, FakeDevice& endpoint) {
        Connection connection(sockets[index], index == 0 ? "the server" : "the client", limit);
        try {
            Side side(endpoint, connection, w, index == 0, limit, {});
            for (const std::size_t size : w.sizes)
                for (const Op op : w.ops)
                    sides[static_cast<std::size_t>(index)].results.push_back(
                        side.measure(op, size));
        } catch (const std::exception& error) {
            sides[static_cast<std::size_t>(index)].error = error.what();
            connection.abort(error.what());
        }
    };
    {
        std::jthread client_thread([&] { work(0, client); }),
            server_thread([&] { work(1, server); });
    }
    return sides;
}

bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

Workload small_workload(std::vector<Op> ops, std::vector<std::size_t> sizes) {
    return {.ops = std::move(ops),
            .sizes = std::move(sizes),
            .iterations = 300,
            .depth = 16,
            .qps = 1,
            .repeats = 2};
}

}  // namespace

TEST_CASE("every operation moves all bytes, for all sizes, queue pairs, depths and moderations") {
    for (const bool bidirectional : {false, true})
        for (const int qps : {1, 3})
            for (const int depth : {1, 7, 1000})
                for (const int every : {0, 1, 5, 100}) {
                    CAPTURE(bidirectional);
                    CAPTURE(qps);
                    CAPTURE(depth);
                    CAPTURE(every);
                    Workload w =
                        small_workload({Op::write, Op::read, Op::send}, {1, 7, 8, 100, 70000});
                    w.iterations = 41;
                    w.qps = qps, w.depth = depth, w.moderation = every,
                    w.bidirectional = bidirectional;
                    const auto sides = measure_both_sides(w);
                    for (const SideResults& side : sides) {
                        CHECK(side.error == "");
                        REQUIRE(side.results.size() == 15);
                        for (const Result& result : side.results) {
                            CHECK(result.local.wrong == 0);
                            CHECK(result.remote.wrong == 0);
                            REQUIRE(result.rates.size() == 2);
                            for (std::size_t i = 0; i < 2; ++i) {
                                CHECK(result.rates[i] > 0);
                                CHECK(result.peaks[i] >= result.rates[i] * (1 - 1e-9));
                            }
                        }
                    }
                    for (std::size_t i = 0; i < 15; ++i)
                        CHECK(sides[0].results[i].rates == sides[1].results[i].rates);
                }
}

TEST_CASE("a flipped bit is found on the verifying side and reported on both") {
    for (const Op op : {Op::write, Op::read, Op::send}) {
        const Workload w = small_workload({op}, {65536});
        const std::uint64_t slots = Layout(w, 65536).slots;
        for (const std::uint64_t message :
             {std::uint64_t{0}, slots - 1, slots + 299, slots + 599}) {
            CAPTURE(name(op));
            CAPTURE(message);
            const auto sides = measure_both_sides(w, {.flip_at = message});
            const Result& client = sides[0].results.at(0);
            const Result& server = sides[1].results.at(0);
            const Verification& verification = op == Op::read ? client.local : client.remote;
            CHECK(verification.wrong == 1);
            REQUIRE(verification.first);
            CHECK(verification.first->offset == 32768);
            CHECK((verification.first->expected ^ verification.first->observed) == 4);
            CHECK(client.local.wrong + client.remote.wrong == 1);
            CHECK(server.local.wrong + server.remote.wrong == 1);
        }
    }
}

TEST_CASE("a message that never arrives although it is reported as complete is found") {
    for (const std::size_t size : {1, 4, 65536})
        for (const Op op : {Op::write, Op::read}) {
            CAPTURE(size);
            const auto sides = measure_both_sides(small_workload({op}, {size}), {.drop_at = 3});
            CHECK(sides[0].results.at(0).local.wrong + sides[0].results.at(0).remote.wrong == 1);
        }
}

TEST_CASE("a failed message ends both sides, each with the reason") {
    const auto sides = measure_both_sides(small_workload({Op::write}, {65536}), {.fail_at = 100});
    CHECK(sides[0].error == "write of 64 KiB to the server failed: planted error (status 12)");
    CHECK(sides[1].error ==
          "the client gave up: write of 64 KiB to the server failed: planted error (status 12)");
}

TEST_CASE("the results of sizes that passed before a failed message stay") {
    const Workload w = small_workload({Op::write}, {2, 1024, 65536});
    std::uint64_t messages = 5;  // of the third size
    for (const std::size_t size : {2, 1024})
        messages += Layout(w, size).slots + w.iterations * static_cast<std::uint64_t>(w.repeats);
    for (const SideResults& side : measure_both_sides(w, {.fail_at = messages})) {
        CHECK(side.results.size() == 2);
        CHECK(says(side.error, "write of 64 KiB to the server failed: planted error (status 12)"));
    }
}

TEST_CASE("a transfer that stalls is ended by its time limit, on both sides") {
    for (const Op op : {Op::write, Op::send}) {
        const auto sides =
            measure_both_sides(small_workload({op}, {65536}), {.stall_at = 100}, 0.5);
        CAPTURE(sides[0].error);
        CAPTURE(sides[1].error);
        CHECK((says(sides[0].error, "nothing was completed for 0.5 s") ||
               says(sides[1].error, "nothing was completed for 0.5 s")));
        CHECK(sides[0].error != "");
        CHECK(sides[1].error != "");
    }
}

TEST_CASE("a workload is read as it was written, and invalid ones are refused") {
    Workload w = small_workload({Op::read, Op::send}, {1, 65536});
    w.bidirectional = true;
    w.moderation = 9;
    CHECK(to_json(read_workload(to_json(w))) == to_json(w));
    for (const char* change : {R"({"ops": ["fly"]})",
                               R"({"ops": []})",
                               R"({"sizes": [0]})",
                               R"({"sizes": "many"})",
                               R"({"sizes": [18446744073709551600]})",
                               R"({"sizes": [1152921504606846976], "qps": 16})",
                               R"({"sizes": [1073741825]})",
                               R"({"sizes": [-1]})",
                               R"({"sizes": [1.5]})",
                               R"({"sizes": 5})",
                               R"({"ops": "send"})",
                               R"({"qps": 1025})",
                               R"({"depth": 32769})",
                               R"({"iterations": 1e300})",
                               R"({"repeats": 10001})",
                               R"({"moderation": -1})",
                               R"({"bidirectional": 1})",
                               R"({"depth": 0})",
                               R"({"qps": -1})",
                               R"({"iterations": 0})",
                               R"({"repeats": null})"}) {
        CAPTURE(change);
        Json j = to_json(w);
        j.update(Json::parse(change));
        CHECK_THROWS_AS(read_workload(j), PeerError);
    }
    CHECK_THROWS_AS(read_workload(Json()), PeerError);
}

TEST_CASE("completions are moderated as perftest does it") {
    Workload w;
    CHECK(moderation(w, 2) == 100);
    CHECK(moderation(w, 8192) == 100);
    CHECK(moderation(w, 8193) == 1);
    w.depth = 16;
    CHECK(moderation(w, 2) == 16);
    w.moderation = 4;
    CHECK(moderation(w, 1 << 20) == 4);
}

TEST_CASE("slots do not overlap, and fit the usual limit on locked memory") {
    Workload w;
    w.sizes = {1, 100, 65536, 5000};
    w.qps = 3;
    CHECK(Layout::memory(w) <= 8u << 20);
    for (const std::size_t size : w.sizes) {
        const Layout layout(w, size);
        std::vector<std::pair<std::size_t, std::size_t>> slots;
        for (int qp = 0; qp < w.qps; ++qp)
            for (std::uint64_t m = 0; m < layout.slots; ++m) {
                slots.emplace_back(layout.outgoing(qp, m), layout.outgoing(qp, m) + size);
                slots.emplace_back(layout.incoming(qp, m), layout.incoming(qp, m) + size);
            }
        std::ranges::sort(slots);
        for (std::size_t i = 1; i < slots.size(); ++i) CHECK(slots[i].first >= slots[i - 1].second);
        CHECK(slots.back().second <= Layout::memory(w));
    }
}
