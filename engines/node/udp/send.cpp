// The sending side: asks the receiver whether it is there, sends at the wanted rate, tells what it
// has sent.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>

#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/udp/transmit.hpp"
#include "node/udp/udp.hpp"

namespace assay::node {
namespace {

constexpr double tick_s = 0.1;        // between repetitions of a word
constexpr double report_limit_s = 8;  // longer than the receiver waits for what is late
constexpr int rounds_of_refusal = 3;  // so often in a row: nobody is there

// One of the addresses that the host's name stands for.
struct Door {
    Address address;
    UdpSocket socket;
    int error = 0;     // of the last attempt
    int refusals = 0;  // in a row
};

struct Answer {
    Door* door;
    Welcome welcome;
};

class Sender {
public:
    Sender(const Options& options, Sink& sink);
    void run();

private:
    void open();
    Answer call();
    std::optional<Answer> ask(Door&);
    Error why_no_answer() const;
    void check_mtu(const Door&) const;
    Sent transmit(const Answer&);
    std::optional<Report> tell(const Answer&, const Sent&);
    void record(const Answer&, const Sent&, const std::optional<Report>&) const;

    const Options& options_;
    Sink& sink_;
    const int port_;
    Hello hello_;
    std::vector<Door> doors_;
};

std::uint64_t random_number() {
    std::random_device source;
    return std::uint64_t{source()} << 32 | source();
}

Sender::Sender(const Options& options, Sink& sink)
    : options_(options), sink_(sink), port_(static_cast<int>(options.integer("port"))) {
    hello_.run = random_number();
    hello_.size = static_cast<std::uint64_t>(options.integer("size"));
    hello_.streams = static_cast<std::uint32_t>(options.integer("streams"));
    hello_.rate = options.real("rate");
    hello_.seconds = options.real("budget");
    hello_.host = host_name();
    const double messages = hello_.rate * hello_.seconds / static_cast<double>(hello_.size);
    hello_.planned = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(messages));
}

void Sender::open() {
    if (options_.text("host").empty())
        throw Error("node.udp_send: no host given", "give --host, the receiver's name or address");
    for (const Address& address : resolve(options_.text("host"), port_)) {
        if (!address.is_loopback() && interface_of(address))
            throw Error(
                fmt::format(
                    "{} is an address of this machine ({}) itself: nothing would go over the wire",
                    address.text(), host_name()),
                "send from another machine");
        Door& door = doors_.emplace_back(address, UdpSocket(address));
        if (connect(door.socket.fd(), address.get(), address.length) != 0) door.error = errno;
        else check_mtu(door);
    }
}

std::optional<Answer> Sender::ask(Door& door) {
    const std::string words = encode(hello_);
    if (send(door.socket.fd(), words.data(), words.size(), MSG_DONTWAIT) < 0) {
        door.error = errno;
        if (errno == ECONNREFUSED) ++door.refusals;
    }
    const auto datagram = door.socket.receive(tick_s);
    if (!datagram) return std::nullopt;
    if (datagram->error) {
        door.error = datagram->error;
        ++door.refusals;
        return std::nullopt;
    }
    const auto word = decode(datagram->words);
    if (word && word->refusal && word->refusal->run == hello_.run)
        throw Error(word->refusal->why, word->refusal->fix);
    if (word && word->welcome && word->welcome->run == hello_.run)
        return Answer{&door, *word->welcome};
    return std::nullopt;
}

Answer Sender::call() {
    const Nanoseconds until = now() + static_cast<Nanoseconds>(options_.real("wait") * 1e9);
    sink_.progress(0, fmt::format("calling {}", options_.text("host")));
    const auto is_closed = [](const Door& d) {
        return d.error != 0 && (d.error != ECONNREFUSED || d.refusals >= rounds_of_refusal);
    };
    while (!interrupted() && now() < until && !std::ranges::all_of(doors_, is_closed)) {
        for (Door& door : doors_) {
            if (is_closed(door)) continue;
            if (const auto answer = ask(door)) return *answer;
        }
    }
    throw why_no_answer();
}

Error Sender::why_no_answer() const {
    const std::string host = options_.text("host");
    if (interrupted()) return Error("interrupted before the receiver had answered");
    const auto has = [this](auto... errors) {
        return std::ranges::any_of(doors_,
                                   [=](const Door& d) { return ((d.error == errors) || ...); });
    };
    if (has(ECONNREFUSED))
        return Error(fmt::format("nobody receives on {}, port {}", host, port_),
                     fmt::format("start 'assay udp receive -H {}' there first", host));
    if (has(ENETUNREACH, EHOSTUNREACH, ENETDOWN))
        return Error(fmt::format("there is no way to {} ({})", host, doors_.front().address.text()),
                     "see 'ip route get' and whether the machine is up");
    for (const Door& d : doors_)
        if (d.error != 0)
            return Error(fmt::format("cannot send to {}: {}", host, std::strerror(d.error)),
                         d.error == EPERM || d.error == EACCES
                             ? "does this machine's firewall forbid it?"
                             : "see 'ip route get'");
    return Error(
        fmt::format("{} ({}) does not answer within {} s", host, doors_.front().address.text(),
                    options_.text("wait")),
        fmt::format("is it up, does 'assay udp receive -H {}' run there, and is UDP port {} open?",
                    host, port_));
}

// Of the way as far as this host knows it.
void Sender::check_mtu(const Door& door) const {
    if (options_.flag("fragments")) return;
    int mtu = 0;
    socklen_t length = sizeof mtu;
    const bool six = door.address.is_six();
    if (getsockopt(door.socket.fd(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &mtu,
                   &length) != 0)
        return;
    Address own;
    own.length = sizeof own.storage;
    getsockname(door.socket.fd(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
    const auto interface = interface_of(own);
    require_mtu(host_name(), interface ? interface->name : "the way", mtu, hello_.size,
                door.address.headers());
}

Sent Sender::transmit(const Answer& answer) {
    if (options_.flag("realtime")) enter_realtime();
    const Route route{answer.door->address, answer.welcome.sockets, !options_.flag("no_gso"),
                      options_.flag("fragments"), static_cast<int>(options_.integer("threads"))};
    Transmitter transmitter(hello_, route);
    const Nanoseconds began = now();
    Nanoseconds shown = began;
    for (std::uint64_t count = 0; !transmitter.is_done();) {
        answer.door->socket.receive(
            tick_s);  // nothing is expected; it is a nap that the other side can cut short
        if (interrupted()) transmitter.stop();
        if (now() - shown < 1'000'000'000) continue;
        const double rate = static_cast<double>((transmitter.messages() - count) * hello_.size) /
                            seconds(now() - shown);
        shown = now();
        count = transmitter.messages();
        const double done = std::min(1.0, seconds(shown - began) / hello_.seconds);
        sink_.progress(done, fmt::format("{:.2f} Gbit/s to {}", rate * 8e-9, answer.welcome.host),
                       hello_.seconds * (1 - done));
    }
    transmitter.stop();
    return transmitter.sent();
}

// Says what was sent until the receiver has said what arrived.
std::optional<Report> Sender::tell(const Answer& answer, const Sent& sent) {
    const std::string words =
        encode(End{hello_.run, sent.streams, sent.rate, sent.dropped, sent.pause, sent.gso});
    const UdpSocket& socket = answer.door->socket;
    int refusals = 0;
    for (const Nanoseconds until = now() + static_cast<Nanoseconds>(report_limit_s * 1e9);
         now() < until && refusals < rounds_of_refusal;) {
        if (send(socket.fd(), words.data(), words.size(), MSG_DONTWAIT) < 0 &&
            errno == ECONNREFUSED)
            ++refusals;
        const auto datagram = socket.receive(tick_s);
        if (!datagram) continue;
        if (datagram->error == ECONNREFUSED) ++refusals;
        const auto word = decode(datagram->words);
        if (word && word->report && word->report->run == hello_.run) return word->report;
    }
    return std::nullopt;
}

void Sender::record(const Answer& answer, const Sent& sent,
                    const std::optional<Report>& report) const {
    const auto single = [](double value) { return summarize({&value, 1}); };
    Address own;
    own.length = sizeof own.storage;
    getsockname(answer.door->socket.fd(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
    const auto interface = interface_of(own);
    const Subject subject{.host = host_name(),
                          .peer = answer.welcome.host,
                          .device = interface ? interface->name : ""};
    const Json params = {{"of", "all streams"},      {"streams", hello_.streams},
                         {"size", hello_.size},      {"wanted", hello_.offered()},
                         {"budget", hello_.seconds}, {"gso", sent.gso}};
    sink_.measurement(udp_send, "bandwidth", subject, params, single(sent.rate));
    sink_.measurement(udp_send, "offered", subject, params, single(sent.rate / hello_.offered()));
    sink_.measurement(udp_send, "dropped", subject, params,
                      single(static_cast<double>(sent.dropped)));
    sink_.measurement(udp_send, "longest_pause", subject, params, single(sent.pause));
    if (report && sent.messages > 0)
        sink_.measurement(
            udp_send, "delivered", subject, params,
            single(static_cast<double>(report->received) / static_cast<double>(sent.messages)));
    else
        sink_.waived(udp_send, "delivered", subject, params,
                     fmt::format("{} sent no report", answer.welcome.host));
}

void Sender::run() {
    open();
    const Answer answer = call();
    const Sent sent = transmit(answer);
    const auto report = tell(answer, sent);
    record(answer, sent, report);
    if (sent.error && !interrupted()) throw *sent.error;
}

}  // namespace

void detail::run_udp_send(const Options& options, Bench& bench) {
    catch_interrupts();
    Sender(options, bench.sink).run();
}

}  // namespace assay::node
