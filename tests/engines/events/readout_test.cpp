// Which sends a readout unit starts while earlier sends are in flight. HeldTransport keeps every
// send in flight until the test completes it.
#include "events/readout.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/options.hpp"
#include "events/measurements.hpp"

using namespace assay;
using namespace assay::events;

namespace {

constexpr int ranks = 5;

class HeldTransport final : public Transport {
public:
    int rank() const override { return 0; }
    int size() const override { return ranks; }
    std::string library() const override { return "held"; }
    Ticket send(const void*, std::size_t, int peer, int) override {
        const Ticket ticket = posted_++;
        ++in_flight[peer];
        ++sends[peer];
        order.push_back(peer);
        sent_[ticket] = peer;
        return ticket;
    }
    Ticket receive(void*, std::size_t, int, int) override { return posted_++; }
    void complete_first(int peer) {
        for (const auto& [ticket, to] : sent_)
            if (to == peer) {
                completed_.push_back(ticket);
                --in_flight[peer];
                sent_.erase(ticket);
                return;
            }
    }
    void poll(std::vector<Ticket>& completed) override {
        completed = std::exchange(completed_, {});
    }
    Ticket get(void*, std::size_t, int, std::size_t) override { return posted_++; }
    void put(const void*, std::size_t, int, std::size_t) override {}
    void flush(int) override {}
    std::byte* create_window(std::size_t) override { return nullptr; }
    void free_window() override {}
    void begin_sum(std::span<double>) override {}
    void begin_max(std::span<double>) override {}
    bool test_collective() override { return true; }
    std::vector<std::string> gather(const std::string& value) override { return {value}; }
    void broadcast(std::string&) override {}
    [[noreturn]] void abort(int) override { throw std::exception(); }

    std::map<int, int> in_flight, sends;  // by peer
    std::vector<int> order;               // of the peers that were sent to

private:
    Ticket posted_ = 0;
    std::map<Ticket, int> sent_;
    std::vector<Ticket> completed_;
};

// A readout unit among builder units that have `credits` groups each.
struct PlantedReadout {
    explicit PlantedReadout(std::vector<std::string> arguments)
        : settings(read_settings(Options::parse(build, with(std::move(arguments))), ranks)),
          context(transport, settings),
          readout(context, nullptr) {
        context.members.epoch = 1;
        context.members.since.assign(ranks, 1);
        readout.on_members();
        readout.start(0, 0);
    }
    static std::vector<std::string> with(std::vector<std::string> more) {
        more.insert(more.end(), {"--fragment", "4KiB", "--events", "1000", "--duration", "0"});
        return more;
    }
    void assign(int builder, std::uint16_t slot) {
        auto batch = std::make_shared<Batch>();
        batch->epoch = context.members.epoch;
        batch->first = assigned++;
        batch->new_slots = {{builder, slot}};
        readout.on_batch(std::move(batch));
    }
    // A round: a group for each other rank.
    void assign_all(std::uint16_t slot) {
        auto batch = std::make_shared<Batch>();
        batch->epoch = context.members.epoch;
        batch->first = assigned;
        for (int builder = 1; builder < ranks; ++builder, ++assigned)
            batch->new_slots.push_back({builder, slot});
        readout.on_batch(std::move(batch));
    }
    // The rank is lost (epoch 0) or a member since `epoch`.
    void change(int rank, Epoch since, Epoch epoch) {
        context.members.since[static_cast<std::size_t>(rank)] = since;
        context.members.epoch = epoch;
        context.connected[static_cast<std::size_t>(rank)] = since != 0;
        context.reachable[static_cast<std::size_t>(rank)] = since != 0;
        readout.on_members();
    }
    // Advances until nothing more is sent.
    void advance() {
        for (int i = 0; i < 200; ++i) readout.advance(0);
    }
    void complete_first(int builder) {
        transport.complete_first(builder);
        context.operations.poll([&](const Operation& operation, bool success) {
            readout.on_sent(operation.peer, operation.index, success);
        });
        advance();
    }

    HeldTransport transport;
    Settings settings;
    RankContext context;
    Readout readout;
    std::uint64_t assigned = 0;
};

}  // namespace

TEST_CASE("a builder unit that receives nothing does not delay the sends to others") {
    for (const std::string protocol : {"push", "pull"}) {
        CAPTURE(protocol);
        PlantedReadout planted({"--protocol", protocol, "--credits", "8", "--in-flight", "8"});
        const auto assign = [&](int builder, std::uint16_t slot) {
            if (protocol == "pull")
                planted.readout.on_request(builder, {planted.assigned, 0, slot, 0});
            planted.assign(builder, slot);
        };
        // All groups of builder unit 1 come first.
        for (std::uint16_t slot = 0; slot < 8; ++slot) assign(1, slot);
        planted.advance();
        CHECK(planted.transport.in_flight[1] == 2);  // of 8 sends, to 4 builder units
        for (int builder = 2; builder < ranks; ++builder)
            for (std::uint16_t slot = 0; slot < 8; ++slot) assign(builder, slot);
        planted.advance();
        for (int builder = 1; builder < ranks; ++builder)
            CHECK(planted.transport.in_flight[builder] == 2);
        // The builder unit that has received a send gets the next one.
        planted.complete_first(3);
        CHECK(planted.transport.in_flight[3] == 2);
        CHECK(planted.transport.in_flight[1] == 2);
    }
}

TEST_CASE("a builder unit that came back gets each group once, whatever waited for it before") {
    for (const std::vector<std::string>& options :
         std::vector<std::vector<std::string>>{{"--protocol", "push"},
                                               {"--protocol", "pull"},
                                               {"--protocol", "push", "--schedule", "random"}}) {
        CAPTURE(options[1]);
        std::vector<std::string> arguments = options;
        arguments.insert(arguments.end(), {"--credits", "8", "--in-flight", "2"});
        PlantedReadout planted(arguments);
        const auto assign = [&](int builder, std::uint16_t slot) {
            if (options[1] == "pull")
                planted.readout.on_request(builder, {planted.assigned, 0, slot, 0});
            planted.assign(builder, slot);
        };
        // More wait for both units than may be in flight.
        for (std::uint16_t slot = 0; slot < 8; ++slot)
            for (const int builder : {1, 2}) assign(builder, slot);
        planted.advance();
        planted.change(1, 0, 2);
        planted.advance();
        planted.change(1, 3, 3);
        while (planted.transport.in_flight[1] > 0) planted.complete_first(1);
        planted.transport.sends[1] = 0;
        assign(1, 7);
        for (int i = 0; i < 20; ++i)
            for (const int builder : {1, 2})
                if (planted.transport.in_flight[builder] > 0) planted.complete_first(builder);
        CHECK(planted.transport.sends[1] == 1);
    }
}

TEST_CASE("the limit of sends in flight, and the share of one builder unit in it") {
    // By the limit of all sends: the sends to one builder unit of four.
    const std::map<int, int> expected = {{1, 1}, {2, 2}, {4, 2}, {12, 3}};
    for (const auto& [limit, per_builder] : expected) {
        PlantedReadout planted({"--credits", "8", "--in-flight", std::to_string(limit)});
        for (std::uint16_t slot = 0; slot < 8; ++slot) planted.assign(2, slot);
        planted.advance();
        CHECK(planted.transport.in_flight[2] == per_builder);
    }
}

TEST_CASE(
    "with the pull protocol a group is sent after its request, and not after another group's") {
    PlantedReadout planted({"--protocol", "pull", "--credits", "2", "--in-flight", "4"});
    planted.assign(1, 0);
    planted.advance();
    CHECK(planted.transport.in_flight[1] == 0);
    planted.readout.on_request(1, {7, 0, 0, 0});  // a group that is not assigned yet
    planted.advance();
    CHECK(planted.transport.in_flight[1] == 0);
    planted.readout.on_request(1, {0, 0, 0, 0});
    planted.advance();
    CHECK(planted.transport.in_flight[1] == 1);
}

TEST_CASE("a new plan counts from the batch on that follows it") {
    const std::string file = "/tmp/assay-test-steps-" + std::to_string(getpid());
    std::ofstream(file) << "1 2 3 4 0\n2 3 4 0 1\n3 4 0 1 2\n4 0 1 2 3\n";
    PlantedReadout planted(
        {"--credits", "3", "--in-flight", "100", "--schedule", "file", "--schedule-file", file});
    unlink(file.c_str());
    planted.assign_all(0);
    planted.readout.on_plan({.to = {3, 1, no_rank, 4, 2}, .from = {1, 2, no_rank, 3, 4}});
    planted.assign_all(1);
    planted.advance();
    CHECK(planted.transport.order == std::vector<int>{1, 2, 3, 4, 3, 1, 4, 2});
    planted.readout.on_plan(read_plan(encode_plan({.to = {4, 3, 2, 1}, .from = {1, 2, 3, 4}})));
    planted.transport.order.clear();
    planted.assign_all(2);
    planted.advance();
    CHECK(planted.transport.order == std::vector<int>{4, 3, 2, 1});
    CHECK(planted.context.schedule.sources(0, {1, 2, 3, 4}, {0}, 1) ==
          std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("a readout unit that waits asks to be woken while groups wait for production") {
    PlantedReadout planted({"--credits", "8", "--in-flight", "4"});
    planted.advance();  // as many groups are produced ahead as may be
    for (std::uint16_t slot = 0; slot < 8; ++slot) planted.assign(1, slot);
    // As in a simulation: it runs again only at the time that it has asked for.
    do {
        planted.context.wake = 0;
        planted.readout.advance(0);
    } while (planted.context.wake != 0);
    CHECK(planted.context.counters.report.assigned_events == 8);
}
