// The receiving side: waits for a sender, receives until it says that it has sent all (or falls
// silent), and judges nothing by the sender's clock.
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

constexpr double tick_s = 0.1;
constexpr double silence_s = 3;  // without a message: the sender has died, or cannot be heard
constexpr double settled_s =
    0.05;  // after the last message, when all are there: duplicates may follow
constexpr double drained_s =
    0.3;  // after the last message, when some are missing: they may be late
constexpr double drain_limit_s = 3;
constexpr double linger_s = 0.5;  // the report may be lost, and is asked for again

struct Setting {
    Address address;
    Interface interface;
    std::uint64_t size;
    bool fragments, verify;
    int threads;
    std::uint64_t buffer;  // granted
};

struct Caller {
    Hello hello;
    Address address;
};

class Receiver {
public:
    Receiver(const Options& options, Sink& sink);
    void run();

private:
    std::optional<Caller> await_caller();
    bool accepts(const Hello&, const UdpSocket::Datagram&);
    void refuse(std::uint64_t run, const Address& to, const std::string& why,
                const std::string& fix);
    Reception receive(const Caller&);
    void listen(const Caller&, const Listener&, Reception&);
    void answer(const Caller&, Reception&, const std::string& reply_to_end);
    void show(const Hello&, const Listener&, Nanoseconds began);

    const Options& options_;
    Sink& sink_;
    Setting setting_;
    UdpSocket control_;
    std::vector<UdpSocket> sockets_;
    Nanoseconds shown_ = 0, seen_ = 0;  // of progress
    std::uint64_t seen_count_ = 0;
};

Setting read_setting(const Options& options) {
    if (options.text("host").empty())
        throw Error("node.udp_receive: no host given",
                    "give --host, the name or address of the interface to receive on");
    auto [address, interface] =
        find_local(options.text("host"), static_cast<int>(options.integer("port")));
    Setting s{address,
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
    : options_(options), sink_(sink), setting_(read_setting(options)), control_(setting_.address) {
    if (options.flag("realtime")) enter_realtime();
    const auto port = static_cast<int>(options.integer("port"));
    const auto count = static_cast<std::size_t>(options.integer("sockets"));
    control_.bind(setting_.address);
    control_.set(IPPROTO_IP, IP_PKTINFO, 1);
    if (setting_.address.is_six()) control_.set(IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    if (port + static_cast<int>(count) > 65535)
        throw Error(fmt::format("no {} ports follow port {}", count, port),
                    "choose a lower --port");
    for (std::size_t i = 0; i < count; ++i) {
        UdpSocket& one = sockets_.emplace_back(setting_.address);
        setting_.buffer = one.enlarge(true, static_cast<std::uint64_t>(options.integer("buffer")));
        one.set(IPPROTO_UDP, UDP_GRO,
                1);  // without it (before Linux 5.0) every message comes by itself
        one.bind(setting_.address.with_port(port + 1 + static_cast<int>(i)));
    }
    if (setting_.threads == 0) setting_.threads = default_threads(count);
    setting_.threads = std::min(setting_.threads, static_cast<int>(count));
}

void Receiver::refuse(std::uint64_t run, const Address& to, const std::string& why,
                      const std::string& fix) {
    control_.send(encode(Refusal{run, why, fix}), to);
}

bool Receiver::accepts(const Hello& hello, const UdpSocket::Datagram& datagram) {
    const Setting& s = setting_;
    if (hello.size != s.size) {
        const std::string why = fmt::format("messages of {} bytes are offered, and {} expects {}",
                                            hello.size, host_name(), s.size);
        refuse(hello.run, datagram.from, why, "give the same --size to both");
        fmt::print(stderr, "assay-probe: {} was refused: {}\n", hello.host, why);
        return false;
    }
    // Two interfaces in one subnet: the neighbour's answer decides by which one packets come.
    const bool elsewhere = datagram.interface != 0 && datagram.interface != s.interface.index;
    if (elsewhere && s.interface.name != "lo" && !datagram.from.is_loopback()) {
        const Error error(fmt::format("packets for {} come in by interface {}, not by {}",
                                      s.address.text(), datagram.interface, s.interface.name),
                          "are two interfaces in one subnet? set net.ipv4.conf.all.arp_ignore=1 "
                          "and arp_announce=2");
        refuse(hello.run, datagram.from, error.what(), error.fix);
        throw error;
    }
    return true;
}

std::optional<Caller> Receiver::await_caller() {
    const double limit = options_.real("wait");
    const std::string where = setting_.address.with_port_text();
    const Nanoseconds began = now();
    for (Nanoseconds shown = 0;;) {
        const double waited = seconds(now() - began);
        if (interrupted()) return std::nullopt;
        if (waited > limit)
            throw Error(fmt::format("no sender came to {} ({} on {}) within {:g} s", where,
                                    setting_.interface.name, host_name(), limit),
                        fmt::format("start 'assay udp send -H {}' on another machine meanwhile; is "
                                    "UDP port {} open to it?",
                                    options_.text("host"), options_.integer("port")));
        if (now() - shown > 1'000'000'000) {
            shown = now();
            sink_.progress(
                0, fmt::format("waiting for a sender on {} ({})", where, setting_.interface.name),
                limit - waited);
        }
        const auto datagram = control_.receive(std::min(tick_s, limit));
        if (!datagram || datagram->error) continue;
        const auto word = decode(datagram->words);
        if (word && word->hello && accepts(*word->hello, *datagram))
            return Caller{*word->hello, datagram->from};
    }
}

// Answers one word of the control port, if there is one in time.
void Receiver::answer(const Caller& caller, Reception& reception, const std::string& reply_to_end) {
    const auto datagram = control_.receive(tick_s);
    if (!datagram || datagram->error) return;
    const auto word = decode(datagram->words);
    if (!word) return;
    if (word->hello && word->hello->run == caller.hello.run)
        control_.send(encode(Welcome{caller.hello.run, static_cast<std::uint32_t>(sockets_.size()),
                                     host_name()}),
                      datagram->from);
    else if (word->hello)
        refuse(word->hello->run, datagram->from,
               fmt::format("{} is receiving from {} ({}) already", host_name(), caller.hello.host,
                           caller.address.text()),
               "wait for the end of that run, or end it");
    if (word->end && word->end->run == caller.hello.run) {
        reception.end = *word->end;
        if (!reply_to_end.empty()) control_.send(reply_to_end, datagram->from);
    }
}

void Receiver::show(const Hello& hello, const Listener& listener, Nanoseconds began) {
    const Nanoseconds t = now();
    if (t - shown_ < 1'000'000'000) return;
    const std::uint64_t count = listener.received();
    const double rate =
        shown_ ? static_cast<double>((count - seen_count_) * hello.size) / seconds(t - shown_) : 0;
    const double done = seconds(t - began) / hello.seconds;
    sink_.progress(std::clamp(done, 0.0, 1.0),
                   fmt::format("{:.2f} Gbit/s from {}", rate * 8e-9, hello.host),
                   std::max(0.0, hello.seconds * (1 - done)));
    shown_ = t;
    seen_count_ = count;
}

void Receiver::listen(const Caller& caller, const Listener& listener, Reception& reception) {
    control_.send(
        encode(Welcome{caller.hello.run, static_cast<std::uint32_t>(sockets_.size()), host_name()}),
        caller.address);
    const Nanoseconds began = now();
    Nanoseconds ended = 0;
    while (!interrupted()) {
        answer(caller, reception, "");
        const Nanoseconds t = now();
        const double quiet = seconds(t - std::max({listener.last(), began, ended}));
        if (reception.end) {
            if (ended == 0) ended = t;
            std::uint64_t sent = 0;
            for (const std::uint64_t one : reception.end->sent) sent += one;
            if (quiet > (listener.received() >= sent ? settled_s : drained_s) ||
                seconds(t - ended) > drain_limit_s)
                return;
        } else if (quiet > silence_s) {
            return;
        }
        show(caller.hello, listener, began);
    }
    reception.interrupted = true;
}

Reception Receiver::receive(const Caller& caller) {
    Reception reception;
    reception.hello = caller.hello;
    const auto dropped = [this] {
        std::uint64_t sum = 0;
        for (const UdpSocket& one : sockets_) sum += one.dropped();
        return sum;
    };
    const std::string& device = setting_.interface.name;
    const DropCounters before = read_drops(device), private_before = read_private_counters(device);
    const std::uint64_t dropped_before = dropped();
    // Who has bound this process to some processors (numactl, taskset) has chosen.
    const int numa = is_confined() ? -1 : setting_.interface.numa;
    Listener listener(sockets_, caller.hello, setting_.verify, setting_.threads, numa);
    listen(caller, listener, reception);
    listener.stop();
    reception.arrivals = listener.arrivals();
    reception.socket_drops = dropped() - dropped_before;
    reception.grown = grown(before, read_drops(device));
    reception.private_grown = grown(private_before, read_private_counters(device));
    reception.details = {{"threads", setting_.threads},
                         {"sockets", sockets_.size()},
                         {"buffer", setting_.buffer},
                         {"verified", setting_.verify},
                         {"mtu", setting_.interface.mtu}};
    return reception;
}

void Receiver::run() {
    sink_.ready(setting_.address.with_port_text());
    const auto caller = await_caller();
    if (!caller) return;
    Reception reception = receive(*caller);
    const Hello& hello = reception.hello;
    Subject subject{.host = host_name(), .device = setting_.interface.name};
    if (setting_.interface.numa >= 0) subject.numa = setting_.interface.numa;
    if (reception.arrivals.first == 0 && !reception.end && !reception.interrupted)
        throw Error(
            fmt::format("{} ({}) called, but no message of it arrived within {:g} s", hello.host,
                        caller->address.text(), silence_s),
            fmt::format("does every switch on the way carry frames of {} bytes?",
                        hello.size + static_cast<std::uint64_t>(setting_.address.headers()) + 18));
    const Reckoning reckoning = reckon(reception);
    const std::string words =
        encode(Report{hello.run, reckoning.unique, reckoning.lost, reckoning.bandwidth});
    if (reception.end) control_.send(words, caller->address);
    report(sink_, subject, reception, reckoning);
    if (reception.end && reception.arrivals.first == 0)
        fmt::print(stderr,
                   "assay-probe: nothing of what {} sent arrived; does every switch on the way "
                   "carry frames of this size?\n",
                   hello.host);
    if (!reception.end && !reception.interrupted)
        sink_.failure(reckoning.loss_doubt,
                      "see what ended it there; the loss is reckoned up to the last message seen",
                      subject);
    for (const Nanoseconds until = now() + static_cast<Nanoseconds>(linger_s * 1e9);
         reception.end && now() < until && !interrupted();)
        answer(*caller, reception, words);
}

}  // namespace

void detail::run_udp_receive(const Options& options, Bench& bench) {
    catch_interrupts();
    Receiver(options, bench.sink).run();
}

}  // namespace assay::node
