// Fuzz target: messages between ranks without MPI: streams of frames, datagrams, the order of
// libfabric's messages, and the messages of event building; and the files that event building
// reads.
#include <netinet/in.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "core/error.hpp"
#include "events/messages.hpp"
#include "events/schedule.hpp"
#include "events/sizes.hpp"
#include "fuzz.hpp"
#include "transport/direct/stream_transport.hpp"
#include "transport/ofi/flow.hpp"
#include "transport/udp/channel.hpp"

using namespace assay;

using fuzz::append;

namespace {

// --- Frames: the byte stream of a peer, in pieces

// A job of one rank. Its stream to itself is used as the stream of a peer.
class Stream final : public direct::StreamTransport {
public:
    Stream()
        : StreamTransport(direct::Listener(direct::read_address("127.0.0.1", 0)), alone(),
                          settings()) {
        create_window(4096);
    }
    void offer(const std::byte* data, std::size_t bytes, std::size_t piece) {
        reset(0);
        std::string fault;
        for (std::size_t done = 0; done < bytes && fault.empty() && !inbox(0).is_blocked();)
            done += consume(0, data + done, std::min(piece, bytes - done), fault);
        if (fault.empty() && inbox(0).is_blocked()) resume(0, fault);
        std::array<iovec, 16> pieces;
        int count = 0;
        outbox(0).gather(0, 1 << 16, pieces, count);
    }

private:
    static direct::Membership alone() { return {0, 0, {}, {{"127.0.0.1", 1}}}; }
    static direct::MeshSettings settings() {
        direct::MeshSettings settings;
        settings.transport = "x";
        return settings;
    }
    void on_outbox_filled(int) override {}
    void on_receive_posted(int) override {}
    void attach(int, int, const direct::Hello&, const session::Proof&) override {}
    void detach(int) override {}
    void progress() override {}
    void on_socket_events(int, std::uint32_t) override {}
};

void append_frame(Input& input, direct::FrameKind kind, int tag, std::uint64_t length,
                  std::uint64_t offset) {
    append(input, direct::Header{direct::frame_magic, kind, 0, tag, length, offset, 1});
    if (direct::has_payload(kind)) input.insert(input.end(), length, 'x');
}

std::vector<Input> seed_frames() {
    Input input{7};
    append_frame(input, direct::FrameKind::message, 3, 40, 0);
    append_frame(input, direct::FrameKind::put, 0, 64, 100);
    append_frame(input, direct::FrameKind::get, 0, 64, 100);
    append_frame(input, direct::FrameKind::flush, 0, 0, 0);
    append_frame(input, direct::FrameKind::flushed, 0, 0, 0);
    append_frame(input, direct::FrameKind::message, -1, 0, 0);
    Input other{200};
    append_frame(other, direct::FrameKind::reply, 0, 8, 0);
    return {input, other};
}

void read_frames(const std::uint8_t* data, std::size_t size) {
    static Stream stream;
    if (size == 0) return;
    stream.offer(reinterpret_cast<const std::byte*>(data + 1), size - 1, 1 + data[0]);
}

// --- Datagrams with a valid authentication tag

struct Sockets {
    Sockets() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
        socket_under_test = ::socket(AF_INET, SOCK_STREAM, 0);
        peer = ::socket(AF_INET, SOCK_DGRAM, 0);
        auto* socket_address = reinterpret_cast<sockaddr*>(&address);
        if (bind(listener, socket_address, length) != 0 || listen(listener, 1) != 0 ||
            getsockname(listener, socket_address, &length) != 0 ||
            connect(socket_under_test, socket_address, length) != 0)
            std::abort();
        accepted = accept(listener, nullptr, nullptr);
        address.sin_port = 0;
        if (bind(peer, socket_address, length) != 0 ||
            getsockname(peer, socket_address, &length) != 0)
            std::abort();
        port = ntohs(address.sin_port);
        close(listener);
    }
    int socket_under_test, peer, accepted = -1;
    std::uint16_t port;
};

void append_datagram(Input& input, std::uint64_t number, std::uint64_t offset, udp::Kind kind,
                     const Input& body) {
    append(input, static_cast<std::uint16_t>(body.size()));
    append(input, udp::Prefix{number, offset, 1, kind, {}, {}});
    input.insert(input.end(), body.begin(), body.end());
}

std::vector<Input> seed_datagrams() {
    Input input, acknowledgement;
    append_datagram(input, 0, 0, udp::Kind::data, Input(100, 'a'));
    append_datagram(input, 2, 150, udp::Kind::data, Input(50, 'c'));
    append_datagram(input, 1, 100, udp::Kind::data, Input(50, 'b'));
    for (const std::uint64_t number : {70000, 2, 0, 1, 2, 3}) append(acknowledgement, number);
    append_datagram(input, 3, 0, udp::Kind::acknowledgement, acknowledgement);
    return {input};
}

void read_datagrams(const std::uint8_t* data, std::size_t size) {
    static const Sockets sockets;
    const session::Proof key{5};
    udp::Channel channel(sockets.socket_under_test, 0, 1, key);
    channel.begin({sockets.port, 0, 1 << 16});
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(channel.setup().port);
    direct::Outbox outbox;
    const Input sent(1 << 16);
    outbox.add({direct::frame_magic, direct::FrameKind::message, 0, 1, sent.size(), 0, 0},
               sent.data(), sent.size(), 1);
    channel.send(outbox, now(), false);
    fuzz::InputReader parts(data, size);
    const auto take = [](const std::byte*, std::size_t bytes) { return bytes - bytes / 3; };
    for (int k = 0; k < 16 && parts.remaining() > sizeof(udp::Prefix); ++k) {
        const std::size_t bytes = parts.read<std::uint16_t>() % 2048;
        auto prefix = parts.read<udp::Prefix>();
        std::string datagram(reinterpret_cast<const char*>(&prefix), sizeof prefix);
        datagram += parts.read_bytes(bytes);
        constexpr std::size_t front = sizeof prefix - sizeof prefix.tag;
        std::string covered = datagram.substr(0, front);
        if (prefix.kind != udp::Kind::data) covered += datagram.substr(sizeof prefix);
        crypto_shorthash_siphash24(reinterpret_cast<unsigned char*>(datagram.data() + front),
                                   reinterpret_cast<const unsigned char*>(covered.data()),
                                   covered.size(), key.data());
        sendto(sockets.peer, datagram.data(), datagram.size(), 0,
               reinterpret_cast<const sockaddr*>(&to), sizeof to);
        channel.receive(now(), take);
        channel.resume(take);
        channel.send(outbox, now(), false);
        if (channel.sender().arrived() > outbox.end()) std::abort();
    }
    char ignored[2048];
    while (recv(sockets.peer, ignored, sizeof ignored, MSG_DONTWAIT) >= 0) {
    }
}

// --- The order of libfabric's messages

std::vector<Input> seed_flow() {
    Input input;
    for (const std::uint64_t number : {1, 0, 2, 3, 5, 1}) append(input, number);
    return {input};
}

void read_flow(const std::uint8_t* data, std::size_t size) {
    ofi::Flow flow(1);
    fuzz::InputReader parts(data, size);
    for (int buffer = 0; parts.remaining() > 0; ++buffer) {
        const auto number = parts.read<std::uint64_t>();
        if (number % 5 == 0 && flow.may_send()) flow.sent(buffer);
        flow.on_acknowledged(number % 7, buffer);
        flow.arrived(number, buffer);
        for (; flow.front() != ofi::Flow::none; flow.consume(buffer))
            if (flow.front() > buffer) std::abort();
        if (flow.acknowledgement_due(buffer)) flow.acknowledged();
        if (!flow.may_send() && flow.all_acknowledged()) std::abort();
    }
}

// --- Event building

Input input_of_message(const events::Bytes& message) {
    Input input(message.size());
    std::memcpy(input.data(), message.data(), message.size());
    return input;
}

std::vector<Input> seed_messages() {
    events::Membership members;
    members.epoch = 4;
    members.since = {1, 1, 4};
    events::Report report;
    report.latency = {{1, 2}, {3, 4}};
    events::Batch batch;
    batch.new_slots = {{1, 0}, {2, 1}};
    batch.reassigned.resize(1);
    std::vector<Input> inputs;
    for (const events::Bytes& message :
         {events::encode_hello("host"), events::encode_done({}),
          events::encode_rank(events::MessageKind::peer_joined, 2),
          events::encode_peer_lost({1, 2}), events::encode_damage({}),
          events::encode_report(report).front(), events::encode_welcome({"label", 1, 2, members}),
          events::encode_members(members), events::encode_batch(batch),
          events::encode_empty(events::MessageKind::stop),
          events::encode_slot(events::MessageKind::offer, {}), events::encode_barrier({})})
        inputs.push_back(input_of_message(message));
    return inputs;
}

// Calls `read`, which may throw assay::Error.
template <class Read>
void read_or_refuse(const Read& read) {
    try {
        read();
    } catch (const Error&) {
    }
}

void read_messages(const std::uint8_t* data, std::size_t size) {
    // A copy of exactly this size, so that the sanitizer sees a read beyond the end.
    const events::Bytes copy(reinterpret_cast<const std::byte*>(data),
                             reinterpret_cast<const std::byte*>(data) + size);
    const std::span<const std::byte> message(copy);
    read_or_refuse([&] { events::read_kind(message); });
    read_or_refuse([&] { events::read_hello(message); });
    read_or_refuse([&] { events::read_done(message); });
    read_or_refuse([&] { events::read_rank(message); });
    read_or_refuse([&] { events::read_peer_lost(message); });
    read_or_refuse([&] { events::read_damage(message); });
    read_or_refuse([&] { events::read_report(message); });
    read_or_refuse([&] { events::read_welcome(message); });
    read_or_refuse([&] { events::read_members(message); });
    read_or_refuse([&] { events::read_batch(message); });
    read_or_refuse([&] { events::read_slot(message); });
    read_or_refuse([&] { events::read_barrier(message); });
}

std::vector<Input> seed_schedules() {
    return {fuzz::input_of("\x02# a step a line\n1 2 0\n2 0 1\n"),
            fuzz::input_of("\x03-1,2,3,0\n1 -1 0 2\n2,3,1,-1\n3 0,-1 1\n-1 -1 -1 -1\n1 0 3 2\n")};
}

void read_schedule(const std::uint8_t* data, std::size_t size) {
    fuzz::InputReader parts(data, size);
    const int ranks = 1 + parts.read<std::uint8_t>() % 8;
    const std::string text = parts.read_bytes(size);
    const auto plan = events::Plan::from_text(text, "x", ranks);
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    for (const int rank : all) {
        const events::Steps steps = plan.of(rank);
        if (steps.to.size() != plan.size() || steps.from.size() != plan.size()) std::abort();
        for (std::size_t step = 0; step < plan.size(); ++step)
            if (const int to = steps.to[step];
                to != events::no_rank && plan.of(to).from[step] != rank)
                std::abort();
        const events::Schedule schedule(events::Schedule::Order::file, 0, steps);
        schedule.destinations(rank, all, all, 1);
        if (schedule.sources(rank, all, all, 1).size() != all.size()) std::abort();
    }
}

std::vector<Input> seed_sizes() {
    return {
        fuzz::input_of("0-1 fixed 4096\n2 uniform 1 100\n3 normal 4000 500 # x\n* fixed 8KiB\n"),
        fuzz::input_of("0,2 choice 100:1 200:0.5\n* normal 1e6 1\n")};
}

void read_sizes(const std::uint8_t* data, std::size_t size) {
    constexpr int sources = 5;
    const std::string text(data, data + size);
    const auto sizes = events::Sizes::read(text, "x", sources, 1);
    for (int source = 0; source < sources; ++source)
        for (std::uint64_t event = 0; event < 4; ++event)
            if (sizes.fragment_bytes(source, event) > sizes.largest(source) ||
                sizes.fragment_bytes(source, event) == 0)
                std::abort();
}

}  // namespace

std::vector<Reader> readers() {
    return {{"frames", seed_frames, read_frames},
            {"datagrams", seed_datagrams, read_datagrams},
            {"flow", seed_flow, read_flow},
            {"events", seed_messages, read_messages},
            {"schedule", seed_schedules, read_schedule},
            {"sizes", seed_sizes, read_sizes}};
}
