// Tests of the parts of event building that need no transport: schedules, fragment sizes, messages,
// the ledger, the event manager and the barrier.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "core/error.hpp"
#include "events/barrier.hpp"
#include "events/ledger.hpp"
#include "events/manager.hpp"
#include "events/messages.hpp"
#include "events/payload.hpp"
#include "events/schedule.hpp"
#include "events/sizes.hpp"

using namespace assay;
using namespace assay::events;

namespace {

std::vector<int> random_subset(std::mt19937& random, int n, int min_ranks) {
    std::vector<int> ranks;
    for (int rank = 0; rank < n; ++rank)
        if (random() % 4 != 0 || static_cast<int>(ranks.size()) + n - rank <= min_ranks)
            ranks.push_back(rank);
    return ranks;
}

std::string shift_file(int n) {
    std::string text = "# planned\n";
    for (int k = 1; k < n; ++k) {
        for (int rank = 0; rank < n; ++rank) text += std::to_string((rank + k) % n) + " ";
        text += "\n";
    }
    return text;
}

// Checks that the schedules of all ranks have every pair of readout and builder unit once, that no
// destination has two sources in one step (`without_conflicts`), and that sources() is the inverse
// of destinations().
void check_cover(const std::function<Schedule(int)>& of_rank, const std::vector<int>& readouts,
                 const std::vector<int>& builders, bool without_conflicts) {
    std::map<std::pair<std::size_t, int>, int> arrivals;
    std::size_t steps = 0;
    for (const int from : readouts) {
        const auto order = of_rank(from).destinations(from, readouts, builders, 3);
        if (steps == 0) steps = order.size();
        CHECK(order.size() == steps);
        std::vector<int> served;
        for (std::size_t k = 0; k < order.size(); ++k) {
            if (order[k] == no_rank) continue;
            served.push_back(order[k]);
            ++arrivals[{k, order[k]}];
        }
        std::ranges::sort(served);
        CHECK(served == builders);
    }
    for (const auto& [arrival, n] : arrivals) CHECK((n == 1 || !without_conflicts));
    for (const int to : builders) {
        auto sources = of_rank(to).sources(to, readouts, builders, 3);
        std::ranges::sort(sources);
        CHECK(sources == readouts);
    }
}

}  // namespace

TEST_CASE("a schedule serves each pair once, also with the ranks that are left") {
    std::mt19937 random(7);
    for (int n = 2; n < 24; ++n) {
        const std::vector<int> members = random_subset(random, n, 2);
        const std::vector<int> builders = random_subset(random, n, 1);
        const auto shift = [](int) { return Schedule(Schedule::Order::shift, 1); };
        check_cover(shift, members, members, true);
        check_cover(shift, members, builders, true);
        check_cover([](int) { return Schedule(Schedule::Order::random, 1); }, members, members,
                    false);
        const Plan plan = Plan::from_text(shift_file(n), "f", n);
        check_cover([&](int rank) { return Schedule(Schedule::Order::file, 1, plan.of(rank)); },
                    members, members, true);
    }
}

TEST_CASE("a schedule file is refused with its line") {
    const auto refusal_of = [](const std::string& text) {
        try {
            Plan::from_text(text, "f", 3);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refusal_of("1 2 0\n2 0 1\n") == "");
    CHECK(refusal_of("1 2 0\n1 2\n") == "f, line 2: 2 destinations for 3 ranks");
    CHECK(refusal_of("1 2 0\n1 2 x\n") == "f, line 2: \"x\" is not a rank");
    CHECK(refusal_of("1 2 3\n") == "f, line 1: \"3\" is not a rank");
    CHECK(refusal_of("1 0 0\n") == "f, line 1: two ranks send to rank 0");
    CHECK(refusal_of("1 2 0\n1 2 0\n") == "f, line 2: rank 0 sends to rank 1 a second time");
    CHECK(refusal_of("1 2 0\n") == "f: rank 0 never sends to rank 2");
    CHECK(refusal_of("") == "f: rank 0 never sends to rank 1");
}

TEST_CASE("a plan without a pair, or with a rank that does not exist, is refused") {
    CHECK(Plan::from_steps({{1, 0}, {-1, -1}}, "p", 2).size() == 2);
    CHECK_THROWS_WITH(Plan::from_steps({{1, -1}}, "p", 2), "p: rank 1 never sends to rank 0");
    CHECK_THROWS_WITH(Plan::from_steps({{1, 2}}, "p", 2), "p, step 1: \"2\" is not a rank");
    CHECK_THROWS_WITH(Plan::from_steps({{1, -2}}, "p", 2), "p, step 1: \"-2\" is not a rank");
    CHECK_THROWS_WITH(Plan::from_steps({{1}}, "p", 2), "p, step 1: 1 destinations for 2 ranks");
}

TEST_CASE("sizes have the given mean and bound, and are functions of source and event") {
    const std::string text =
        "0 fixed 100 # all alike\n1 uniform 10 20\n2 normal 1000 100\n* choice 8:3 80:1\n";
    const Sizes sizes = Sizes::read(text, "f", 5, 42);
    for (int source = 0; source < 5; ++source) {
        double sum = 0;
        constexpr int n = 20000;
        for (std::uint64_t event = 0; event < n; ++event) {
            const std::uint32_t size = sizes.fragment_bytes(source, event);
            CHECK(size >= 1);
            CHECK(size <= sizes.largest(source));
            CHECK(size == sizes.fragment_bytes(source, event));
            sum += size;
        }
        CHECK(sum / n == doctest::Approx(sizes.mean(source)).epsilon(0.03));
    }
    CHECK(sizes.mean(3) == 26);
    const Sizes written =
        Sizes::read("0 fixed 64MiB\n1 fixed 64k\n2 uniform 1kB 1.5KiB\n* choice 2m:1\n", "f", 4, 1);
    CHECK(written.largest(0) == 64U << 20);
    CHECK(written.largest(1) == 64U << 10);
    CHECK(written.mean(2) == (1000 + 1536) / 2);
    CHECK(written.largest(3) == 2U << 20);
    for (const char* invalid_line :
         {"0 fixed 1GiB\n", "0 fixed 64MiBs\n", "0 fixed 64 MiB\n", "0k fixed 3\n", "0 fixed\n",
          "0 fixed 0\n", "0 fixed 1e20\n", "0 uniform 5 4\n", "0 choice 5\n", "0 choice 5:0\n",
          "0 poisson 3\n", "9 fixed 3\n", "0 fixed 3\n0 fixed 3\n", "0 fixed 3\n", "1-x fixed 3\n",
          "0 normal nan 1\n"})
        CHECK_THROWS_AS(Sizes::read(invalid_line, "f", 5, 1), Error);
    CHECK_THROWS_WITH(Sizes::read("* fixed 1\nfixed 8\n", "f", 5, 1),
                      "f, line 2: no sources before \"fixed 8\"");
}

TEST_CASE("every damage to a message is found and located") {
    const Format format{Sizes::read("* uniform 1 300\n", "f", 3, 5), 9, true};
    const EventGroup group{4, 40, 10};
    std::vector<std::uint64_t> memory(format.capacity(1, 10) / 8 + 1);
    auto* data = reinterpret_cast<std::byte*>(memory.data());
    const std::size_t bytes = write_message(data, format, 1, group);
    CHECK(bytes == format.message_bytes(1, group));
    CHECK(verify_message(data, format, 1, group).state == MessageCheck::State::intact);
    CHECK(verify_message(data, format, 1, group).payload == format.payload_bytes(1, group));
    CHECK(verify_message(data, format, 2, group).state == MessageCheck::State::unexpected);
    CHECK(verify_message(data, format, 1, {5, 50, 10}).state == MessageCheck::State::unexpected);
    std::mt19937 random(3);
    int unnoticed = 0;
    for (int i = 0; i < 2000; ++i) {
        const std::size_t offset = random() % bytes;
        const std::byte flip{static_cast<unsigned char>(1u << (random() % 8))};
        data[offset] ^= flip;
        const MessageCheck check = verify_message(data, format, 1, group);
        // A flip in the padding changes no payload, so it is not noticed.
        if (check.state == MessageCheck::State::intact) ++unnoticed;
        else CHECK((check.state == MessageCheck::State::damaged && !check.wrong_bytes.empty()));
        data[offset] ^= flip;
    }
    CHECK(unnoticed < 2000 * 7 * 10 / static_cast<int>(bytes));
    CHECK(verify_message(data, format, 1, group).state == MessageCheck::State::intact);
}

TEST_CASE("the ledger accepts each group once, and only outcomes that add up") {
    Ledger ledger;
    ledger.open(0, {10, 4, 1});
    ledger.open(1, {10, 4, 1});
    CHECK_THROWS(ledger.open(1, {10, 4, 1}));
    CHECK(!ledger.close(2, {}).empty());
    CHECK(!ledger.close(0, {.events_built = 9, .built = 36}).empty());
    CHECK(!ledger.close(0, {.events_built = 10, .built = 39}).empty());
    CHECK(!ledger.close(0, {.events_built = 9, .events_incomplete = 1, .built = 37, .lost = 3})
               .empty());
    CHECK(ledger.close(0, {.events_built = 10, .built = 40}).empty());
    CHECK(!ledger.close(0, {.events_built = 10, .built = 40}).empty());
    CHECK(!ledger.balances());
    CHECK(ledger.close(1, {.events_incomplete = 10, .partial = 30, .lost = 10}).empty());
    CHECK(ledger.balances());
    CHECK(ledger.total().lost == 10);
}

namespace {

// Builder units that finish in random order, die and come back.
void run_randomly(unsigned seed, bool in_rounds, bool drop) {
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 7),
              credits = 1 + static_cast<int>(random() % 3);
    const int slots = credits * (1 + static_cast<int>(seed % 3 == 0));
    const Units units = Units::assign(ranks, false, 0);
    EventManager manager(units, {.ranks = ranks,
                                 .credits = credits,
                                 .slots = slots,
                                 .in_rounds = in_rounds,
                                 .events_per_group = 3,
                                 .events = 1000,
                                 .drop = drop});
    std::vector<int> all(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    manager.admit(all);
    struct HeldGroup {
        Assignment assignment;
        std::uint32_t sources, remaining_sources;
        bool parked = false;
    };
    std::vector<HeldGroup> held_groups;
    Nanoseconds time = 0;
    const auto sources_since = [&](Epoch epoch) {
        return static_cast<std::uint32_t>(std::ranges::count_if(
            units.readouts, [&](int r) { return manager.membership().has_since(r, epoch); }));
    };
    for (int step = 0; step < 200000 && !manager.drained(); ++step) {
        time += 100'000;
        if (const auto batch = manager.plan(time)) {
            std::set<int> builders;
            for (std::size_t i = 0; i < batch->new_slots.size(); ++i) {
                const auto n = sources_since(manager.membership().epoch);
                held_groups.push_back({{batch->first + i, batch->new_slots[i]}, n, n});
                CHECK(builders.insert(batch->new_slots[i].builder).second);
            }
            for (const Reassignment& moved : batch->reassigned) {
                held_groups.push_back({moved.to, moved.sources, sources_since(moved.epoch)});
                CHECK(builders.insert(moved.to.target.builder).second);
            }
            for (const int b : builders) CHECK(manager.membership().has(b));
        }
        if (!held_groups.empty() && random() % 3 != 0) {
            const std::size_t i = random() % held_groups.size();
            const HeldGroup group_of_unit = held_groups[i];
            held_groups.erase(held_groups.begin() + static_cast<std::ptrdiff_t>(i));
            const std::uint64_t events =
                std::min<std::uint64_t>(3, 1000 - group_of_unit.assignment.group * 3);
            const std::uint64_t lost = group_of_unit.sources - group_of_unit.remaining_sources;
            Outcome outcome;
            if (lost == 0)
                outcome = {.events_built = events, .built = events * group_of_unit.sources};
            else
                outcome = {.events_incomplete = events,
                           .partial = events * group_of_unit.remaining_sources,
                           .lost = events * lost};
            CHECK(manager.close(group_of_unit.assignment, outcome, time) == "");
        }
        const int victim = 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1));
        if (random() % 50 == 0 && manager.remove(victim))
            std::erase_if(held_groups, [&](const HeldGroup& group_of_unit) {
                return group_of_unit.assignment.target.builder == victim;
            });
        if (random() % 50 == 0 && !manager.membership().has(victim)) manager.admit({victim});
        if (slots > credits && !held_groups.empty() && random() % 4 == 0) {
            HeldGroup& group_of_unit = held_groups[random() % held_groups.size()];
            CHECK(manager.park(group_of_unit.assignment) == !group_of_unit.parked);
            group_of_unit.parked = true;
        }
        // A builder has no more groups than slots, and no more working groups than credits. A
        // parked group needs no credit.
        std::map<int, int> count, working;
        for (const HeldGroup& group_of_unit : held_groups) {
            CHECK(++count[group_of_unit.assignment.target.builder] <= slots);
            if (!group_of_unit.parked)
                CHECK(++working[group_of_unit.assignment.target.builder] <= credits);
        }
    }
    CHECK(manager.drained());
    CHECK(manager.ledger().balances());
    CHECK(manager.ledger().assigned_events() == 1000);
    CHECK(manager.ledger().total().events() == 1000);
}

}  // namespace

TEST_CASE("every event is closed once, whichever ranks are lost and come back") {
    for (unsigned seed = 0; seed < 40; ++seed) run_randomly(seed, seed % 2 == 0, seed % 4 < 2);
}

TEST_CASE("a builder unit that does not answer delays only its own events") {
    for (const bool in_rounds : {false, true}) {
        EventManager manager(Units::assign(4, false, 0), {.ranks = 4,
                                                          .credits = 2,
                                                          .slots = 2,
                                                          .in_rounds = in_rounds,
                                                          .events_per_group = 1,
                                                          .events = 0,
                                                          .drop = true});
        manager.admit({0, 1, 2, 3});
        std::map<int, int> built;
        Nanoseconds time = 0;
        for (int i = 0; i < 20000; ++i) {
            time += 50'000;
            const auto batch = manager.plan(time);
            if (!batch) continue;
            for (std::size_t k = 0; k < batch->new_slots.size(); ++k) {
                if (batch->new_slots[k].builder == 2) continue;
                CHECK(manager.close({batch->first + k, batch->new_slots[k]},
                                    {.events_built = 1, .built = 4}, time) == "");
                ++built[batch->new_slots[k].builder];
            }
        }
        CHECK(built[2] == 0);
        CHECK(built[1] > 1000);
        CHECK(manager.busy_builders() == std::vector<int>{2});
    }
}

TEST_CASE("in rounds, no rank counts as late before the duration of an event is known") {
    EventManager manager(Units::assign(3, false, 0), {.ranks = 3,
                                                      .credits = 1,
                                                      .slots = 1,
                                                      .in_rounds = true,
                                                      .events_per_group = 1,
                                                      .events = 0,
                                                      .drop = true});
    manager.admit({0, 1, 2});
    constexpr Nanoseconds round = 100'000'000;  // a slow link
    Nanoseconds time = 1;
    for (int i = 0; i < 3; ++i) {
        const auto batch = manager.plan(time);
        REQUIRE(batch.has_value());
        REQUIRE(batch->new_slots.size() == 3);
        for (std::size_t k = 0; k < 3; ++k) {
            time += round / 3;
            CHECK(!manager.plan(time).has_value());
            CHECK(manager.close({batch->first + k, batch->new_slots[k]},
                                {.events_built = 1, .built = 3}, time) == "");
        }
    }
}

TEST_CASE("no rank passes a barrier before all have entered it") {
    for (unsigned seed = 0; seed < 30; ++seed) {
        std::mt19937 random(seed);
        const int n = 1 + static_cast<int>(random() % 9);
        std::vector<int> ranks;
        for (int i = 0; i < n; ++i) ranks.push_back(3 * i + 1);
        std::vector<Barrier> barriers;
        for (const int rank : ranks) barriers.emplace_back(rank);
        std::vector<std::uint64_t> entered(ranks.size());
        std::map<std::pair<int, int>, std::deque<BarrierMessage>> wires;
        // The epochs of the ranks begin at different times.
        for (std::size_t i = 0; i < ranks.size(); ++i) barriers[i].begin(1, ranks);
        for (int step = 0; step < 4000; ++step) {
            const std::size_t i = random() % ranks.size();
            if (random() % 2 == 0 && entered[i] < 20) {
                ++entered[i];
                barriers[i].enter();
            }
            for (std::size_t k = 0; k < ranks.size(); ++k)
                for (const auto& out : barriers[k].take_outgoing())
                    wires[{ranks[k], out.peer}].push_back(out.message);
            for (auto& [wire, messages] : wires) {
                if (messages.empty() || random() % 2 == 0) continue;
                const auto to = static_cast<std::size_t>((wire.second - 1) / 3);
                barriers[to].on_message(wire.first, messages.front());
                messages.pop_front();
            }
            for (const Barrier& barrier : barriers)
                CHECK(barrier.passed() <= *std::ranges::min_element(entered));
        }
        for (const Barrier& barrier : barriers) CHECK(barrier.passed() == 20);
    }
}

TEST_CASE("messages are read as they were written, and damaged ones are refused") {
    Batch batch{.epoch = 3, .number = 7, .first = 100, .new_slots = {{2, 1}, {5, 0}}};
    batch.reassigned.push_back({{4, {1, 1}}, {3, 0}, 2, 8});
    const Bytes written = encode_batch(batch);
    const Batch read = read_batch(written);
    CHECK(read.first == 100);
    CHECK(read.new_slots[1].builder == 5);
    CHECK(read.reassigned[0].from.builder == 3);
    Report report;
    for (std::uint32_t i = 0; i < 3000; ++i) report.latency.push_back({i, i + 1});
    std::size_t counts = 0;
    const std::vector<Bytes> parts = encode_report(report);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        CHECK(parts[i].size() <= max_message_to_manager);
        CHECK(read_report(parts[i]).more == (i + 1 < parts.size()));
        counts += read_report(parts[i]).latency.size();
    }
    CHECK(counts == 3000);
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i) {  // whatever arrives is read or refused, within its bytes
        Bytes damaged = written;
        for (int k = 0; k < 3; ++k)
            damaged[random() % damaged.size()] = static_cast<std::byte>(random());
        damaged.resize(1 + random() % damaged.size());
        try {
            read_batch(damaged);
        } catch (const Error&) {
        }
    }
    CHECK_THROWS_AS(read_done(encode_rank(MessageKind::peer_joined, 3)), Error);
}
