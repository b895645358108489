// node.udp_receive: waits for a sender, and receives until the sender reports its end or falls
// silent. It does not use the sender's clock.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/topology.hpp"
#include "node/udp/results.hpp"
#include "node/udp/socket.hpp"
#include "node/udp/udp.hpp"

#include <netinet/udp.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace assay::node {
namespace {

constexpr double tick_s = 0.1;   // longest wait for a control message at a time
constexpr double silence_s = 3;  // without a message: the sender has died or is unreachable
// After the last message: the wait for duplicates if all have arrived, for late messages if not.
constexpr double complete_wait_s = 0.05, missing_wait_s = 0.3;
constexpr double drain_limit_s = 3;
constexpr double linger_s = 0.5;  // after the report, in case it is lost and requested again

struct ReceiverSettings {
    Address address;
    Interface interface;
    std::uint64_t size;
    bool fragments, verify;
    int threads;
    std::uint64_t buffer;  // granted
};

struct SenderInfo {
    Hello hello;
    Address address;
};

class Receiver {
public:
    Receiver(const Options& options, Sink& sink);
    void run();

private:
    std::optional<SenderInfo> await_sender();
    bool accepts_sender(const Hello&, const UdpSocket::Datagram&);
    void refuse(std::uint64_t run_number, const Address& to, const std::string& reason,
                const std::string& fix);
    void report_foreign(const Address& from);
    std::string welcome(const SenderInfo&) const;
    Reception receive(const SenderInfo&);
    void receive_until_end(const SenderInfo&, const ReceiveThreads&, Reception&);
    void answer_control_message(const SenderInfo&, Reception&, const std::string& reply_to_end);
    void show_progress(const Hello&, const ReceiveThreads&, Nanoseconds start);

    const Options& options_;
    Sink& sink_;
    const Seal seal_;
    ReceiverSettings settings_;
    UdpSocket control_;
    bool foreign_reported_ = false;
    std::vector<UdpSocket> sockets_;
    // Of the last progress record.
    Nanoseconds progress_time_ = 0;
    std::uint64_t progress_messages_ = 0;
};

ReceiverSettings read_settings(const Options& options) {
    if (options.text("host").empty())
        throw Error("node.udp_receive: no host given",
                    "give --host, the name or address of the interface to receive on");
    auto [address, interface] =
        find_local(options.text("host"), static_cast<int>(options.integer("port")));
    ReceiverSettings s{address,
                       interface,
                       static_cast<std::uint64_t>(options.integer("size")),
                       options.flag("fragments"),
                       !options.flag("no_verify"),
                       static_cast<int>(options.integer("threads")),
                       0};
    if (!s.fragments)
        require_mtu(host_name(), interface.name, interface.mtu, s.size, address.headers());
    return s;
}

Receiver::Receiver(const Options& options, Sink& sink)
    : options_(options),
      sink_(sink),
      seal_(read_run_token(options.text("token"))),
      settings_(read_settings(options)),
      control_(settings_.address) {
    if (options.flag("realtime")) enter_realtime();
    const auto port = static_cast<int>(options.integer("port"));
    const auto count = static_cast<std::size_t>(options.integer("sockets"));
    control_.bind(settings_.address);
    control_.set(IPPROTO_IP, IP_PKTINFO, 1);
    if (settings_.address.is_ipv6()) control_.set(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    if (port + static_cast<int>(count) > 65535)
        throw Error(fmt::format("no {} ports follow port {}", count, port),
                    "choose a lower --port");
    for (std::size_t i = 0; i < count; ++i) {
        UdpSocket& socket = sockets_.emplace_back(settings_.address);
        settings_.buffer =
            socket.enlarge(true, static_cast<std::uint64_t>(options.integer("buffer")));
        socket.set(IPPROTO_UDP, UDP_GRO,
                   1);  // fails before Linux 5.0: then every message is received separately
        socket.bind(settings_.address.with_port(port + 1 + static_cast<int>(i)));
    }
    if (settings_.threads == 0) settings_.threads = default_threads(count);
    settings_.threads = std::min(settings_.threads, static_cast<int>(count));
}

void Receiver::refuse(std::uint64_t run_number, const Address& to, const std::string& reason,
                      const std::string& fix) {
    control_.send(seal_.sign(encode(Refusal{run_number, reason, fix})), to);
}

void Receiver::report_foreign(const Address& from) {
    if (foreign_reported_) return;
    foreign_reported_ = true;
    fmt::print(stderr,
               "note: {} sent a control message that is not of this run; refused, as all "
               "such are; fix: if that is the sender, give both sides the same --token\n",
               from.with_port_text());
}

std::string Receiver::welcome(const SenderInfo& sender) const {
    return seal_.sign(encode(Welcome{sender.hello.run_number,
                                     static_cast<std::uint32_t>(sockets_.size()), host_name()}));
}

bool Receiver::accepts_sender(const Hello& hello, const UdpSocket::Datagram& datagram) {
    const ReceiverSettings& s = settings_;
    if (hello.size != s.size) {
        const std::string reason =
            fmt::format("the sender offers messages of {} bytes, {} expects {}", hello.size,
                        host_name(), s.size);
        refuse(hello.run_number, datagram.from, reason, "use the same --size on both sides");
        fmt::print(stderr, "note: refused the sender on {}: {}\n", hello.host, reason);
        return false;
    }
    // With two interfaces in one subnet, the ARP reply decides on which one packets arrive.
    const bool other_interface = datagram.interface != 0 && datagram.interface != s.interface.index;
    if (other_interface && s.interface.name != "lo" && !datagram.from.is_loopback()) {
        const Error error(fmt::format("packets for {} arrive on interface {}, not on {}",
                                      s.address.text(), datagram.interface, s.interface.name),
                          "if two interfaces are in one subnet, set net.ipv4.conf.all.arp_ignore=1 "
                          "and arp_announce=2");
        refuse(hello.run_number, datagram.from, error.what(), error.fix);
        throw error;
    }
    return true;
}

std::optional<SenderInfo> Receiver::await_sender() {
    const double limit = options_.real("wait");
    const std::string address_text = settings_.address.with_port_text();
    const Nanoseconds start = now();
    for (Nanoseconds last_shown = 0;;) {
        const double waited = seconds(now() - start);
        if (interrupted()) return std::nullopt;
        if (waited > limit)
            throw Error(fmt::format("no sender came to {} ({} on {}) within {:g} s", address_text,
                                    settings_.interface.name, host_name(), limit),
                        fmt::format("start 'assay udp send -w {}' on another machine meanwhile, "
                                    "and check that UDP port {} is open to it",
                                    options_.text("host"), options_.integer("port")));
        if (now() - last_shown > 1'000'000'000) {
            last_shown = now();
            sink_.progress(0,
                           fmt::format("waiting for a sender on {} ({})", address_text,
                                       settings_.interface.name),
                           limit - waited);
        }
        const auto datagram = control_.receive(std::min(tick_s, limit));
        if (!datagram || datagram->error) continue;
        const auto message = seal_.open(datagram->text);
        if (!message) report_foreign(datagram->from);
        if (message && message->hello && accepts_sender(*message->hello, *datagram))
            return SenderInfo{*message->hello, datagram->from};
    }
}

// Waits tick_s for a control message and answers it: an end with `reply_to_end`, unless empty.
void Receiver::answer_control_message(const SenderInfo& sender, Reception& reception,
                                      const std::string& reply_to_end) {
    const auto datagram = control_.receive(tick_s);
    if (!datagram || datagram->error) return;
    const auto message = seal_.open(datagram->text);
    if (!message) return;
    if (message->hello && message->hello->run_number == sender.hello.run_number)
        control_.send(welcome(sender), datagram->from);
    else if (message->hello)
        refuse(message->hello->run_number, datagram->from,
               fmt::format("{} is already receiving from {} ({})", host_name(), sender.hello.host,
                           sender.address.text()),
               "wait for the end of that run, or end it");
    if (message->end && message->end->run_number == sender.hello.run_number) {
        reception.end = *message->end;
        if (!reply_to_end.empty()) control_.send(reply_to_end, datagram->from);
    }
}

void Receiver::show_progress(const Hello& hello, const ReceiveThreads& threads, Nanoseconds start) {
    const Nanoseconds t = now();
    if (t - progress_time_ < 1'000'000'000) return;
    const std::uint64_t count = threads.received();
    const double rate = progress_time_
                            ? static_cast<double>((count - progress_messages_) * hello.size) /
                                  seconds(t - progress_time_)
                            : 0;
    const double done = seconds(t - start) / hello.seconds;
    sink_.progress(std::clamp(done, 0.0, 1.0),
                   fmt::format("{:.2f} Gbit/s from {}", rate * 8e-9, hello.host),
                   std::max(0.0, hello.seconds * (1 - done)));
    progress_time_ = t;
    progress_messages_ = count;
}

void Receiver::receive_until_end(const SenderInfo& sender, const ReceiveThreads& threads,
                                 Reception& reception) {
    control_.send(welcome(sender), sender.address);
    const Nanoseconds start = now();
    Nanoseconds ended = 0;
    while (!interrupted()) {
        answer_control_message(sender, reception, "");
        const Nanoseconds t = now();
        const double silence = seconds(t - std::max({threads.last(), start, ended}));
        if (reception.end) {
            if (ended == 0) ended = t;
            std::uint64_t sent = 0;
            for (const std::uint64_t messages : reception.end->sent) sent += messages;
            if (silence > (threads.received() >= sent ? complete_wait_s : missing_wait_s) ||
                seconds(t - ended) > drain_limit_s)
                return;
        } else if (silence > silence_s) {
            return;
        }
        show_progress(sender.hello, threads, start);
    }
    reception.interrupted = true;
}

Reception Receiver::receive(const SenderInfo& sender) {
    Reception reception;
    reception.hello = sender.hello;
    const auto dropped = [this] {
        std::uint64_t sum = 0;
        for (const UdpSocket& socket : sockets_) sum += socket.dropped();
        return sum;
    };
    const std::string& device = settings_.interface.name;
    const Counters before = read_drops(device), private_before = read_private_counters(device);
    const std::uint64_t dropped_before = dropped();
    // A process that the user has bound to some processors (numactl, taskset) stays there.
    const int numa = is_confined() ? -1 : settings_.interface.numa;
    ReceiveThreads threads(sockets_, sender.hello, settings_.verify, settings_.threads, numa);
    receive_until_end(sender, threads, reception);
    threads.stop();
    reception.arrivals = threads.arrivals();
    reception.socket_drops = dropped() - dropped_before;
    reception.growth = growth(before, read_drops(device));
    reception.private_growth = growth(private_before, read_private_counters(device));
    reception.fragments =
        fragments_of(sender.hello.size, settings_.interface.mtu, settings_.address.headers());
    reception.details = {{"threads", settings_.threads},
                         {"sockets", sockets_.size()},
                         {"buffer", settings_.buffer},
                         {"verified", settings_.verify},
                         {"mtu", settings_.interface.mtu}};
    return reception;
}

void Receiver::run() {
    sink_.ready(settings_.address.with_port_text());
    const auto sender = await_sender();
    if (!sender) return;
    Reception reception = receive(*sender);
    const Hello& hello = reception.hello;
    Subject subject{.host = host_name(), .device = settings_.interface.name};
    if (settings_.interface.numa >= 0) subject.numa = settings_.interface.numa;
    if (reception.arrivals.first == 0 && !reception.end && !reception.interrupted)
        throw Error(
            fmt::format("{} ({}) called, but no message of it arrived within {:g} s", hello.host,
                        sender->address.text(), silence_s),
            fmt::format("check that every switch between {} and {} carries frames of {} bytes",
                        hello.host, host_name(),
                        hello.size + static_cast<std::uint64_t>(settings_.address.headers()) + 18));
    const ReceptionResult result = evaluate(reception);
    const std::string report_text =
        seal_.sign(encode(Report{hello.run_number, result.unique, result.lost, result.bandwidth}));
    if (reception.end) control_.send(report_text, sender->address);
    report(sink_, subject, reception, result);
    if (reception.end && reception.arrivals.first == 0)
        fmt::print(stderr,
                   "note: nothing of what {} sent arrived; does every switch between {} and "
                   "{} carry frames of this size?\n",
                   hello.host, hello.host, host_name());
    if (!reception.end && !reception.interrupted)
        sink_.failure(
            result.loss_doubt,
            "find out why the sender ended; the loss is counted up to the last message received",
            subject);
    for (const Nanoseconds until = now() + static_cast<Nanoseconds>(linger_s * 1e9);
         reception.end && now() < until && !interrupted();)
        answer_control_message(*sender, reception, report_text);
}

}  // namespace

void detail::run_udp_receive(const Options& options, Bench& bench) {
    catch_interrupts();
    Receiver(options, bench.sink).run();
}

}  // namespace assay::node
