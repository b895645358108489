// Tests of loss recovery of the UDP transport, in simulated time: a stream through a simulated
// network that loses, repeats and reorders datagrams, and streams between all hosts of a network
// with short queues.
#include "transport/udp/recovery.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

using namespace assay;
using namespace assay::udp;

namespace {

struct Faults {
    double lose = 0, repeat = 0, reorder = 0;  // chances of a datagram
    double lose_answer = 0;                    // of an acknowledgement
};

std::byte value_at(std::uint64_t offset) {
    return static_cast<std::byte>((offset * 2654435761U) >> 11);
}

// One sender, one receiver, a delay of 100 us each way.
class Network {
public:
    Network(Faults faults, unsigned seed, std::size_t window = 1 << 20)
        : faults_(faults), random_(seed), sender_(1000, window), receiver_(window) {}

    // Sends `bytes`; the program takes what it is given unless `take_share` is below 1. Returns the
    // time that it took.
    Nanoseconds transfer(std::uint64_t bytes, double take_share = 1) {
        const Nanoseconds begin = time_, limit = 600'000'000'000;
        while ((sender_.arrived() < bytes || delivered < bytes) && time_ - begin < limit) {
            step(bytes, take_share);
            time_ += 20'000;
        }
        return time_ - begin;
    }
    const Sender& sender() const { return sender_; }
    const Receiver& receiver() const { return receiver_; }
    std::uint64_t wrong = 0, lost = 0, repeated = 0, refused = 0, max_held = 0, delivered = 0;

private:
    bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }

    void step(std::uint64_t end, double take_share) {
        sender_.expire(time_, end);
        while (const auto next = sender_.next(time_, end)) put_on_wire(*next);
        const auto take = [&](const std::byte* data, std::size_t bytes) -> std::size_t {
            if (!chance(take_share)) return 0;
            for (std::size_t i = 0; i < bytes; ++i) wrong += data[i] != value_at(delivered + i);
            delivered += bytes;
            return bytes;
        };
        while (!wire_.empty() && wire_.begin()->first <= time_) {
            const Sender::Datagram datagram = wire_.begin()->second;
            wire_.erase(wire_.begin());
            std::vector<std::byte> data(datagram.length);
            for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_at(datagram.offset + i);
            refused += !receiver_.on_datagram(datagram.number, datagram.offset, data.data(),
                                              data.size(), take);
        }
        max_held = std::max<std::uint64_t>(max_held, receiver_.held());
        if (receiver_.refused()) receiver_.resume(take);
        if (receiver_.acknowledgement_due()) {
            const Acknowledgement answer = receiver_.acknowledge();
            if (!chance(faults_.lose_answer)) answers_.emplace(time_ + 100'000, answer);
        }
        while (!answers_.empty() && answers_.begin()->first <= time_) {
            CHECK(sender_.acknowledge(answers_.begin()->second, time_));
            answers_.erase(answers_.begin());
        }
    }

    void put_on_wire(const Sender::Datagram& datagram) {
        if (chance(faults_.lose)) {
            ++lost;
            return;
        }
        const Nanoseconds late = chance(faults_.reorder) ? 150'000 : 0;
        wire_.emplace(time_ + 100'000 + late, datagram);
        if (!chance(faults_.repeat)) return;
        ++repeated;
        wire_.emplace(time_ + 130'000, datagram);
    }

    const Faults faults_;
    std::mt19937 random_;
    Sender sender_;
    Receiver receiver_;
    Nanoseconds time_ = 1'000'000;
    std::multimap<Nanoseconds, Sender::Datagram> wire_;
    std::multimap<Nanoseconds, Acknowledgement> answers_;
};

}  // namespace

TEST_CASE("a set of ranges is the set of its numbers") {
    std::mt19937 random(3);
    std::uniform_int_distribution<std::uint64_t> number(0, 60), length(0, 9);
    for (int round = 0; round < 200; ++round) {
        Ranges ranges;
        std::set<std::uint64_t> numbers;
        for (int i = 0; i < 12; ++i) {
            const std::uint64_t begin = number(random), end = begin + length(random);
            std::uint64_t fresh = 0;
            for (std::uint64_t n = begin; n < end; ++n) fresh += numbers.insert(n).second;
            CHECK(ranges.add(begin, end) == fresh);
        }
        std::set<std::uint64_t> held;
        std::uint64_t previous = 0;
        bool first = true;
        for (const auto& [begin, end] : ranges.ranges()) {
            CHECK((first || begin > previous));  // joined where they touch
            for (std::uint64_t n = begin; n < end; ++n) held.insert(n);
            previous = end;
            first = false;
        }
        CHECK(held == numbers);
    }
}

TEST_CASE("every byte arrives once and in order, despite loss, repetition and reordering") {
    unsigned seed = 0;
    for (const double lose : {0.0, 0.01, 0.2})
        for (const double reorder : {0.0, 0.1})
            for (const double repeat : {0.0, 0.1}) {
                CAPTURE(lose);
                CAPTURE(reorder);
                CAPTURE(repeat);
                Network network({lose, repeat, reorder, lose}, ++seed);
                network.transfer(2'000'000);
                CHECK(network.delivered == 2'000'000);
                CHECK(network.wrong == 0);
                CHECK(network.sender().in_flight() == 0);
                // Each planted loss is detected. Without loss and reordering none is reported.
                CHECK(network.sender().counts().lost >= network.lost);
                if (lose == 0 && reorder == 0) CHECK(network.sender().counts().lost == 0);
                CHECK(network.refused >= network.repeated * 9 / 10);
            }
}

TEST_CASE("without faults the window grows to what the receiver grants") {
    Network network({}, 1);
    // 10 MB with a window of 1 MB and a round trip of 200 us take about 2 ms, plus the slow start.
    CHECK(network.transfer(10'000'000) < 20'000'000);
    CHECK(network.sender().counts().sent == 10'000);
    CHECK(network.sender().round_trip() >= 200'000);
    CHECK(network.sender().round_trip() < 400'000);
}

TEST_CASE("a program that reads slowly limits the sender to the granted bytes") {
    Network network({0.02, 0, 0.05, 0.02}, 5, 50'000);
    network.transfer(1'000'000, 0.02);
    CHECK(network.delivered == 1'000'000);
    CHECK(network.wrong == 0);
    CHECK(network.max_held <= 100'000);
}

TEST_CASE("an acknowledgement of datagrams that were not sent is refused") {
    Sender sender(1000, 1 << 20);
    REQUIRE(sender.next(0, 5000));
    for (const Acknowledgement& bad :
         {Acknowledgement{1 << 30, {{0, 2}}}, Acknowledgement{1 << 30, {{1, 1}}},
          Acknowledgement{1 << 30, {{5, 9}, {0, 1}}}}) {
        CHECK_FALSE(sender.acknowledge(bad, 1000));
        CHECK(sender.arrived() == 0);
        CHECK(sender.in_flight() == 1000);
    }
    CHECK(sender.acknowledge({5000, {{0, 1}}}, 1000));
    CHECK(sender.arrived() == 1000);
}

TEST_CASE("bytes beyond the granted ones and repeated datagrams are refused") {
    Receiver receiver(1000);
    std::vector<std::byte> data(600);
    const auto take = [](const std::byte*, std::size_t bytes) { return bytes; };
    CHECK_FALSE(receiver.on_datagram(0, 500, data.data(), 600, take));
    CHECK(receiver.on_datagram(0, 0, data.data(), 600, take));
    CHECK_FALSE(receiver.on_datagram(0, 600, data.data(), 600, take));
    CHECK(receiver.on_datagram(1, 600, data.data(), 600, take));
    CHECK(receiver.consumed() == 1200);
}

TEST_CASE("datagrams that the socket did not accept are sent again with the same numbers") {
    Sender sender(1000, 1 << 20);
    const auto first = sender.next(0, 3000);
    const auto second = sender.next(0, 3000);
    REQUIRE(second);
    sender.cancel_from(second->number);
    const auto resent = sender.next(0, 3000);
    REQUIRE(resent);
    CHECK(resent->number == second->number);
    CHECK(resent->offset == second->offset);
    CHECK(sender.counts().sent == 2);
    CHECK(first->offset == 0);
}

TEST_CASE("a datagram that later ones overtook is lost after a round trip, before any timeout") {
    Sender late(1000, 1 << 20);
    Nanoseconds time = 0;
    for (std::uint64_t number = 0; number < 4; ++number) REQUIRE(late.next(time, 10'000));
    CHECK(late.acknowledge({1 << 20, {{0, 1}}}, time += 1'000'000));
    // Number 1 is missing; fewer than three later ones have arrived.
    CHECK(late.acknowledge({1 << 20, {{0, 1}, {2, 3}}}, time));
    CHECK(late.counts().lost == 0);
    late.expire(time + 1'200'000, 10'000);
    CHECK(late.counts().lost == 1);
    CHECK(late.counts().timeouts == 0);
}

TEST_CASE("acknowledgements wait for several datagrams, but not where one was lost or repeated") {
    Receiver receiver(1 << 20);
    std::vector<std::byte> data(100);
    const auto take = [](const std::byte*, std::size_t bytes) { return bytes; };
    const auto offer = [&](std::uint64_t number) {
        receiver.on_datagram(number, number * 100, data.data(), data.size(), take);
    };
    for (std::uint64_t number = 0; number < 15; ++number) offer(number);
    CHECK(receiver.acknowledgement_due());
    CHECK_FALSE(receiver.acknowledgement_urgent());
    offer(15);
    CHECK(receiver.acknowledgement_urgent());
    receiver.acknowledge();
    CHECK_FALSE(receiver.acknowledgement_due());
    offer(17);  // 16 is missing
    CHECK(receiver.acknowledgement_urgent());
    receiver.acknowledge();
    offer(18);
    CHECK_FALSE(receiver.acknowledgement_urgent());
    offer(18);
    CHECK(receiver.acknowledgement_urgent());
    // Of many gaps, the latest are reported.
    for (std::uint64_t number = 20; number < 60; number += 2) offer(number);
    const Acknowledgement answer = receiver.acknowledge();
    CHECK(answer.ranges.size() == max_reported);
    CHECK(answer.ranges.back() == std::pair<std::uint64_t, std::uint64_t>{58, 59});
}

TEST_CASE("each timeout sends data again, even if more is in flight than the window") {
    Sender sender(1000, 1 << 20);
    Nanoseconds time = 0;
    while (sender.next(time, 100'000)) {
    }
    const std::uint64_t begun = sender.counts().sent;
    REQUIRE(begun > 8);
    for (int silence = 1; silence <= 6; ++silence) {
        time += 600'000'000;  // longer than any timeout
        sender.expire(time, 100'000);
        CHECK(sender.next(time, 100'000));
        while (sender.next(time, 100'000)) {
        }
    }
    // One acknowledgement of the last datagram shows which earlier ones are lost.
    const std::uint64_t last = sender.counts().sent - 1;
    CHECK(sender.acknowledge({1 << 20, {{last, last + 1}}}, time + 100'000));
    sender.expire(time + 1'500'000, 100'000);
    CHECK(sender.in_flight() <= 4'000);
}

TEST_CASE("datagrams leave at the pace of the window over the round trip") {
    Sender sender(1000, 1 << 20);
    Nanoseconds time = 1'000'000'000;
    const auto send_all = [&] {
        std::uint64_t sent = 0;
        while (sender.next(time, 1 << 30)) ++sent;
        return sent;
    };
    CHECK(send_all() == 10);  // the first window, before any round trip is known
    CHECK(sender.departure() == 0);
    time += 100'000'000;
    REQUIRE(sender.acknowledge({1 << 30, {{0, 10}}}, time));
    REQUIRE(sender.window() == 20'000);
    // 20 datagrams in 100 ms, at twice that while the window doubles: one in 2.5 ms.
    std::vector<std::uint64_t> sent;
    const Nanoseconds begin = time;
    while (sender.in_flight() < 20'000) {
        sent.push_back(send_all());
        if (sender.departure() == 0) break;
        CHECK(sender.departure() > time);
        time = sender.departure();
    }
    CHECK(*std::ranges::max_element(sent) <= 2);
    CHECK(sender.in_flight() == 20'000);
    CHECK(time - begin >= 40'000'000);
    CHECK(time - begin <= 50'000'000);
}

TEST_CASE("datagrams that the host's full queue refuses are sent later and do not count as lost") {
    Sender sender(1000, 1 << 20);
    const auto first = sender.next(0, 100'000);
    REQUIRE(first);
    sender.cancel_from(first->number);
    CHECK(sender.in_flight() == 0);
    const std::size_t window = sender.window();
    REQUIRE(sender.next(1'000, 100'000));
    CHECK(sender.acknowledge({1 << 20, {{0, 1}}}, 500'000));
    CHECK(sender.counts().lost == 0);
    CHECK(sender.window() >= window);
}

namespace {

// Hosts that all send to each other through planted links: a queue before each host's link to the
// switch, which refuses what it has no room for, and a queue of the switch before each host, which
// drops. A program is called only now and then, as on a busy machine.
struct Plant {
    int hosts;
    double rate;         // B/s of each link and direction
    std::size_t queue;   // B of each
    Nanoseconds paused;  // a program is called again after up to twice this
};

struct Share {
    double payload, lost;  // of what the links could carry, of the datagrams
    double longest_wait;   // in a queue, in seconds, while measured
};

class ShapedNetwork {
public:
    ShapedNetwork(const Plant& plant, unsigned seed)
        : plant_(plant), random_(seed), hosts_(static_cast<std::size_t>(plant.hosts)) {
        for (Host& host : hosts_) {
            host.called_at = pause();
            for (int peer = 0; peer < plant.hosts; ++peer) {
                host.senders.emplace_back(max_bytes, 8 << 20);
                host.receivers.push_back(std::make_unique<Receiver>(8 << 20));
                host.acknowledge_at.push_back(0);
            }
        }
    }
    Share run(Nanoseconds warm_up, Nanoseconds measured) {
        advance_to(warm_up);
        const std::uint64_t consumed = total_consumed();
        longest_queue_ = 0;
        advance_to(warm_up + measured);
        std::uint64_t sent = 0, lost = 0;
        for (const Host& host : hosts_)
            for (const Sender& sender : host.senders) {
                sent += sender.counts().sent;
                lost += sender.counts().lost;
            }
        const double carried = static_cast<double>(total_consumed() - consumed) / seconds(measured);
        return {carried / plant_.rate / plant_.hosts * (max_bytes + headers) / max_bytes,
                static_cast<double>(lost) / static_cast<double>(sent),
                static_cast<double>(longest_queue_) / plant_.rate};
    }

private:
    // Of Ethernet at an MTU of 1500, as a lab's shaper counts them.
    static constexpr std::size_t max_bytes = 1440, headers = 74, acknowledgement_bytes = 98;
    static constexpr std::uint64_t endless = 1ULL << 40;
    static constexpr Nanoseconds clock_offset = 123'456'789;  // of every host
    struct Packet {
        int from, to;
        std::size_t bytes;
        std::optional<Sender::Datagram> datagram;
        Acknowledgement acknowledgement;
        Nanoseconds arrived = 0;
    };
    struct Link {
        std::deque<Packet> packets;
        std::size_t queued = 0;
        Nanoseconds free_at = 0;  // when the first one has left
    };
    struct Host {
        std::vector<Sender> senders;
        std::vector<std::unique_ptr<Receiver>> receivers;
        std::vector<Nanoseconds> acknowledge_at;
        Link up, down;
        std::vector<Packet> arrived;
        Nanoseconds called_at = 0;
        int first = 0;
        FairShare share;
    };
    Nanoseconds pause() {
        return 20'000 + std::uniform_int_distribution<Nanoseconds>(0, 2 * plant_.paused)(random_);
    }
    Host& host(int number) { return hosts_[static_cast<std::size_t>(number)]; }
    bool queue(Link& link, Packet packet) {
        if (link.queued + packet.bytes > plant_.queue) return false;
        if (link.packets.empty()) link.free_at = std::max(time_, link.free_at) + duration(packet);
        link.queued += packet.bytes;
        longest_queue_ = std::max(longest_queue_, link.queued);
        link.packets.push_back(std::move(packet));
        return true;
    }
    Nanoseconds duration(const Packet& packet) const {
        return static_cast<Nanoseconds>(static_cast<double>(packet.bytes) / plant_.rate * 1e9);
    }
    template <class Arrive>
    void move(Link& link, Arrive arrive) {
        while (!link.packets.empty() && link.free_at <= time_) {
            Packet packet = std::move(link.packets.front());
            link.packets.pop_front();
            link.queued -= packet.bytes;
            if (!link.packets.empty()) link.free_at += duration(link.packets.front());
            arrive(std::move(packet));
        }
    }
    void advance_to(Nanoseconds end) {
        for (; time_ < end; time_ += 20'000) {
            for (Host& from : hosts_)
                move(from.up, [&](Packet packet) {
                    Link& down = host(packet.to).down;
                    queue(down, std::move(packet));  // or it is lost
                });
            for (Host& to : hosts_)
                move(to.down, [&](Packet packet) {
                    packet.arrived = time_ + clock_offset;
                    to.arrived.push_back(std::move(packet));
                });
            for (int number = 0; number < plant_.hosts; ++number)
                if (host(number).called_at <= time_) call(number);
        }
    }
    void call(int number) {
        Host& h = host(number);
        h.called_at = time_ + pause();
        for (Packet& packet : h.arrived) {
            const auto from = static_cast<std::size_t>(packet.from);
            if (!packet.datagram) {
                packet.acknowledgement.received = packet.arrived - clock_offset;
                h.senders[from].acknowledge(packet.acknowledgement, time_);
                continue;
            }
            const std::vector<std::byte> data(packet.datagram->length);
            const auto take = [](const std::byte*, std::size_t bytes) { return bytes; };
            if (h.receivers[from]->on_datagram(packet.datagram->number, packet.datagram->offset,
                                               data.data(), data.size(), take))
                h.receivers[from]->set_arrival(packet.datagram->number, packet.arrived);
        }
        h.arrived.clear();
        h.first = (h.first + 1) % plant_.hosts;
        std::uint64_t delivered = 0;
        for (int i = 0; i < plant_.hosts; ++i) {
            const int peer = (h.first + i) % plant_.hosts;
            if (peer == number) continue;
            Sender& sender = h.senders[static_cast<std::size_t>(peer)];
            sender.set_share(h.share.bytes());
            delivered += sender.arrived();
            send(number, peer);
        }
        h.share.record(delivered, h.senders.size() - 1, time_);
    }
    void send(int number, int peer) {
        Host& h = host(number);
        const auto to = static_cast<std::size_t>(peer);
        Receiver& receiver = *h.receivers[to];
        Sender& sender = h.senders[to];
        Nanoseconds& due = h.acknowledge_at[to];
        if (!receiver.acknowledgement_due()) due = 0;
        else if (due == 0) due = time_ + sender.round_trip() / 3;
        if (due != 0 && (receiver.acknowledgement_urgent() || time_ >= due)) {
            due = 0;
            const Acknowledgement answer = receiver.acknowledge(time_ + clock_offset);
            if (!queue(h.up, {number, peer, acknowledgement_bytes, {}, answer}))
                receiver.repeat_acknowledgement();
        }
        sender.expire(time_, endless);
        while (const auto next = sender.next(time_, endless))
            if (!queue(h.up, {number, peer, next->length + headers, *next, {}})) {
                sender.cancel_from(next->number);
                return;
            }
    }
    std::uint64_t total_consumed() const {
        std::uint64_t consumed = 0;
        for (const Host& host : hosts_)
            for (const auto& receiver : host.receivers) consumed += receiver->consumed();
        return consumed;
    }

    const Plant plant_;
    std::mt19937 random_;
    std::vector<Host> hosts_;
    std::size_t longest_queue_ = 0;
    Nanoseconds time_ = 1'000'000;
};

}  // namespace

TEST_CASE("hosts that all send to each other fill planted links with short queues") {
    // 60 Mbit/s and 64 KiB are those of a lab's links: 8.7 ms.
    for (const int hosts : {2, 3, 8})
        for (const Nanoseconds paused : {50'000, 1'000'000}) {
            CAPTURE(hosts);
            CAPTURE(paused);
            const Share share = ShapedNetwork({hosts, 7.5e6, 64 << 10, paused}, 7)
                                    .run(1'000'000'000, 2'000'000'000);
            CAPTURE(share.lost);
            CHECK(share.payload > 0.95);
            CHECK(share.payload <= 1.0);
            CHECK(share.lost < 0.02);
        }
}

TEST_CASE("where no queue ever overflows, datagrams do not wait longer than heartbeats may") {
    // A host is silent after 150 ms. Whatever is sent first in 30 s waits as little as the last.
    for (const int hosts : {2, 8})
        for (const Nanoseconds paused : {50'000, 1'000'000}) {
            CAPTURE(hosts);
            CAPTURE(paused);
            const Share share = ShapedNetwork({hosts, 7.5e6, 64 << 20, paused}, 7)
                                    .run(1'000'000'000, 30'000'000'000);
            CHECK(share.payload > 0.95);
            CHECK(share.lost < 1e-4);  // some are taken for lost while the first queues fill
            CHECK(share.longest_wait < 0.1);
        }
}
