// node.udp_send: finds the receiver, sends at the requested rate, and reports what it has sent.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
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

constexpr double repeat_s = 0.1;      // between repetitions of a control message
constexpr double report_limit_s = 8;  // longer than the receiver waits for late messages
constexpr int max_refusals = 3;       // ECONNREFUSED in a row: no receiver is running

// One of the addresses of the host's name, with a connected socket.
struct Candidate {
    Address address;
    UdpSocket socket;
    int error = 0;     // of the last attempt
    int refusals = 0;  // in a row
};

// The receiver that answered.
struct Answer {
    Candidate* candidate;
    Welcome welcome;
};

class Sender {
public:
    Sender(const Options& options, Sink& sink);
    void run();

private:
    void connect_candidates();
    Answer find_receiver();
    std::optional<Answer> try_candidate(Candidate&);
    Error no_answer_error() const;
    void check_mtu(const Candidate&) const;
    Sent transmit(const Answer&);
    std::optional<Report> report_end(const Answer&, const Sent&);
    void record(const Answer&, const Sent&, const std::optional<Report>&) const;

    const Options& options_;
    Sink& sink_;
    const Seal seal_;
    const int port_;
    Hello hello_;
    std::vector<Candidate> candidates_;
};

std::uint64_t random_run_number() {
    std::random_device source;
    return std::uint64_t{source()} << 32 | source();
}

Sender::Sender(const Options& options, Sink& sink)
    : options_(options),
      sink_(sink),
      seal_(read_run_token(options.text("token"))),
      port_(static_cast<int>(options.integer("port"))) {
    hello_.run_number = random_run_number();
    hello_.size = static_cast<std::uint64_t>(options.integer("size"));
    hello_.streams = static_cast<std::uint32_t>(options.integer("streams"));
    hello_.rate = options.real("rate");
    hello_.seconds = options.real("budget");
    hello_.host = host_name();
    const double messages = hello_.rate * hello_.seconds / static_cast<double>(hello_.size);
    hello_.messages_per_stream = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(messages));
}

void Sender::connect_candidates() {
    if (options_.text("host").empty())
        throw Error("node.udp_send: no host given", "give --host, the receiver's name or address");
    for (const Address& address : resolve(options_.text("host"), port_)) {
        if (!address.is_loopback() && interface_of(address))
            throw Error(
                fmt::format("{} is an address of this machine ({}): nothing would go over the wire",
                            address.text(), host_name()),
                "send from another machine");
        Candidate& candidate = candidates_.emplace_back(address, UdpSocket(address));
        if (connect(candidate.socket.fd(), address.get(), address.length) != 0)
            candidate.error = errno;
        else check_mtu(candidate);
    }
}

std::optional<Answer> Sender::try_candidate(Candidate& candidate) {
    const std::string text = seal_.sign(encode(hello_));
    if (send(candidate.socket.fd(), text.data(), text.size(), MSG_DONTWAIT) < 0) {
        candidate.error = errno;
        if (errno == ECONNREFUSED) ++candidate.refusals;
    }
    const auto datagram = candidate.socket.receive(repeat_s);
    if (!datagram) return std::nullopt;
    if (datagram->error) {
        candidate.error = datagram->error;
        ++candidate.refusals;
        return std::nullopt;
    }
    const auto message = seal_.open(datagram->text);
    if (message && message->refusal && message->refusal->run_number == hello_.run_number)
        throw Error(message->refusal->reason, message->refusal->fix);
    if (message && message->welcome && message->welcome->run_number == hello_.run_number)
        return Answer{&candidate, *message->welcome};
    return std::nullopt;
}

Answer Sender::find_receiver() {
    const Nanoseconds until = now() + static_cast<Nanoseconds>(options_.real("wait") * 1e9);
    sink_.progress(0, fmt::format("calling {}", options_.text("host")));
    const auto has_failed = [](const Candidate& d) {
        return d.error != 0 && (d.error != ECONNREFUSED || d.refusals >= max_refusals);
    };
    while (!interrupted() && now() < until && !std::ranges::all_of(candidates_, has_failed)) {
        for (Candidate& candidate : candidates_) {
            if (has_failed(candidate)) continue;
            if (const auto answer = try_candidate(candidate)) return *answer;
        }
    }
    throw no_answer_error();
}

Error Sender::no_answer_error() const {
    const std::string host = options_.text("host");
    if (interrupted()) return Error("interrupted before the receiver answered");
    const auto has_error = [this](auto... errors) {
        return std::ranges::any_of(
            candidates_, [=](const Candidate& d) { return ((d.error == errors) || ...); });
    };
    if (has_error(ECONNREFUSED))
        return Error(fmt::format("no process receives on {}, port {}", host, port_),
                     fmt::format("start 'assay udp receive -w {}' there first", host));
    if (has_error(ENETUNREACH, EHOSTUNREACH, ENETDOWN))
        return Error(
            fmt::format("there is no route to {} ({})", host, candidates_.front().address.text()),
            "check 'ip route get' and whether the machine is up");
    for (const Candidate& d : candidates_)
        if (d.error != 0)
            return Error(fmt::format("cannot send to {}: {}", host, std::strerror(d.error)),
                         d.error == EPERM || d.error == EACCES ? "check this machine's firewall"
                                                               : "check 'ip route get'");
    return Error(
        fmt::format("{} ({}) does not answer within {} s", host, candidates_.front().address.text(),
                    options_.text("wait")),
        fmt::format("check that it is up, runs 'assay udp receive -w {}', and UDP port {} is open",
                    host, port_));
}

// Checks the path MTU as far as this host knows it.
void Sender::check_mtu(const Candidate& candidate) const {
    if (options_.flag("fragments")) return;
    int mtu = 0;
    socklen_t length = sizeof mtu;
    const bool ipv6 = candidate.address.is_ipv6();
    if (getsockopt(candidate.socket.fd(), ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                   ipv6 ? IPV6_MTU : IP_MTU, &mtu, &length) != 0)
        return;
    Address local;
    local.length = sizeof local.storage;
    getsockname(candidate.socket.fd(), reinterpret_cast<sockaddr*>(&local.storage), &local.length);
    const auto interface = interface_of(local);
    require_mtu(host_name(), interface ? interface->name : "the path", mtu, hello_.size,
                candidate.address.headers());
}

Sent Sender::transmit(const Answer& answer) {
    if (options_.flag("realtime")) enter_realtime();
    const Route route{answer.candidate->address, answer.welcome.sockets, !options_.flag("no_gso"),
                      options_.flag("fragments"), static_cast<int>(options_.integer("threads"))};
    Transmitter transmitter(hello_, route);
    const Nanoseconds start = now();
    Nanoseconds last_progress = start;
    for (std::uint64_t count = 0; !transmitter.is_done();) {
        // Only waits; a message of the receiver would end the wait early.
        answer.candidate->socket.receive(repeat_s);
        if (interrupted()) transmitter.stop();
        if (now() - last_progress < 1'000'000'000) continue;
        const double rate = static_cast<double>((transmitter.messages() - count) * hello_.size) /
                            seconds(now() - last_progress);
        last_progress = now();
        count = transmitter.messages();
        const double done = std::min(1.0, seconds(last_progress - start) / hello_.seconds);
        sink_.progress(done, fmt::format("{:.2f} Gbit/s to {}", rate * 8e-9, answer.welcome.host),
                       hello_.seconds * (1 - done));
    }
    transmitter.stop();
    return transmitter.sent();
}

// Reports what was sent, repeatedly, until the receiver reports what arrived.
std::optional<Report> Sender::report_end(const Answer& answer, const Sent& sent) {
    const std::string text = seal_.sign(encode(End{hello_.run_number, sent.streams, sent.rate,
                                                   sent.dropped, sent.max_lateness, sent.gso}));
    const UdpSocket& socket = answer.candidate->socket;
    int refusals = 0;
    for (const Nanoseconds until = now() + static_cast<Nanoseconds>(report_limit_s * 1e9);
         now() < until && refusals < max_refusals;) {
        if (send(socket.fd(), text.data(), text.size(), MSG_DONTWAIT) < 0 && errno == ECONNREFUSED)
            ++refusals;
        const auto datagram = socket.receive(repeat_s);
        if (!datagram) continue;
        if (datagram->error == ECONNREFUSED) ++refusals;
        const auto message = seal_.open(datagram->text);
        if (message && message->report && message->report->run_number == hello_.run_number)
            return message->report;
    }
    return std::nullopt;
}

void Sender::record(const Answer& answer, const Sent& sent,
                    const std::optional<Report>& report) const {
    const auto single = [](double value) { return summarize({&value, 1}); };
    Address local;
    local.length = sizeof local.storage;
    getsockname(answer.candidate->socket.fd(), reinterpret_cast<sockaddr*>(&local.storage),
                &local.length);
    const auto interface = interface_of(local);
    const Subject subject{.host = host_name(),
                          .peer = answer.welcome.host,
                          .device = interface ? interface->name : ""};
    const Json params = {{"stream", "all"},          {"streams", hello_.streams},
                         {"size", hello_.size},      {"requested_rate", hello_.requested_rate()},
                         {"budget", hello_.seconds}, {"gso", sent.gso}};
    // "offered" is the share of the requested rate that was sent; "longest_pause" is
    // Sent::max_lateness.
    sink_.measurement(udp_send, "bandwidth", subject, params, single(sent.rate));
    sink_.measurement(udp_send, "offered", subject, params,
                      single(sent.rate / hello_.requested_rate()));
    sink_.measurement(udp_send, "dropped", subject, params,
                      single(static_cast<double>(sent.dropped)));
    sink_.measurement(udp_send, "longest_pause", subject, params, single(sent.max_lateness));
    if (report && sent.messages > 0)
        sink_.measurement(
            udp_send, "delivered", subject, params,
            single(static_cast<double>(report->received) / static_cast<double>(sent.messages)));
    else
        sink_.waived(udp_send, "delivered", subject, params,
                     fmt::format("{} sent no report", answer.welcome.host));
}

void Sender::run() {
    connect_candidates();
    const Answer answer = find_receiver();
    const Sent sent = transmit(answer);
    const auto report = report_end(answer, sent);
    record(answer, sent, report);
    if (sent.error && !interrupted()) throw *sent.error;
}

}  // namespace

void detail::run_udp_send(const Options& options, Bench& bench) {
    catch_interrupts();
    Sender(options, bench.sink).run();
}

}  // namespace assay::node
