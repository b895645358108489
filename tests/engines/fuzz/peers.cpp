// Fuzz target: messages that the other side of a connection may send: the handshake, the launcher's
// line with the peers, and the control messages of the RDMA and UDP measurements.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/error.hpp"
#include "fuzz.hpp"
#include "node/rdma/control.hpp"
#include "node/rdma/side.hpp"
#include "node/udp/wire.hpp"
#include "session/handshake.hpp"
#include "transport/direct/rendezvous.hpp"

using namespace assay;

using fuzz::append;

namespace {

constexpr const char* token_text =
    "0101010101010101010101010101010101010101010101010101010101010101";

session::Token token() { return *session::token_from(token_text); }
std::string text_of(const std::uint8_t* data, std::size_t size) { return {data, data + size}; }

// A pair of connected sockets. The other side has sent some bytes and closed its side for sending.
struct Pair {
    explicit Pair(const std::string& sent) {
        int sockets[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
        socket_under_test = sockets[0];
        peer_socket = sockets[1];
        if (!sent.empty() && ::send(peer_socket, sent.data(), sent.size(), MSG_NOSIGNAL) < 0)
            std::abort();
        shutdown(peer_socket, SHUT_WR);
    }
    ~Pair() { close(peer_socket); }
    int socket_under_test, peer_socket;
};

// --- The proof

std::vector<Input> seed_proof() {
    Input response, challenge;
    append(response, session::Response{session::handshake_magic, {1}, {2}});
    append(challenge, session::Challenge{session::handshake_magic, {3}});
    challenge.insert(challenge.end(), 32, 4);
    return {response, challenge};
}

// Aborts if any bytes are accepted as a proof: the sender does not know the token.
void read_proof(const std::uint8_t* data, std::size_t size) {
    const std::string sent = text_of(data, size);
    {
        const Pair pair(sent);
        session::Caller caller(pair.socket_under_test, "x");
        for (int k = 0; k < 3; ++k)
            if (caller.advance(token(), "x") == session::Caller::State::admitted) std::abort();
    }
    const Pair pair(sent);
    if (session::introduce(pair.socket_under_test, token(), "x", 1000)) std::abort();
    close(pair.socket_under_test);
}

// --- The line of peers

std::vector<Input> seed_peers() {
    const std::string begin =
        std::string(R"({"kind":"peers","incarnation":1,"token":")") + token_text + R"(","peers":[)";
    return {fuzz::input_of("\x02" + begin +
                           R"({"rank":0,"address":"10.0.0.1","port":7001},)"
                           R"({"rank":1,"address":"fd00::2","port":7002}]})"),
            fuzz::input_of("\x01" + begin + R"({"rank":0,"address":"","port":0}]})")};
}

void read_peers(const std::uint8_t* data, std::size_t size) {
    fuzz::InputReader parts(data, size);
    const int ranks = 1 + parts.read<std::uint8_t>() % 8;
    const std::string line = parts.read_bytes(size);
    const direct::Membership read = direct::read_membership(line, 0, ranks);
    if (read.size() != ranks) std::abort();
}

// --- The control messages of RDMA

constexpr const char* workload =
    R"({"ops":["write","send"],"sizes":[1,65536],"iterations":5,"depth":4,"qps":2,)"
    R"("moderation":0,"repeats":1,"bidirectional":true})";

std::vector<Input> seed_control() {
    return {
        fuzz::input_of(std::string(R"(h{"type":"hello","host":"a","port":"b:1","numa":0,)") +
                       "\"workload\":" + workload + "}"),
        fuzz::input_of(R"(h{"type":"alive","done":0.5})"),
        fuzz::input_of(R"(h{"type":"abort","what":"no memory"})"),
        fuzz::input_of(std::string("rARSP\0\0\0\1\0\0\0\20{\"type\":\"hello\"}", 28)),
    };
}

// An input that begins with 'h' is sent after a valid header, any other as it is.
void read_control(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return;
    std::string sent = text_of(data + 1, size - 1);
    if (data[0] == 'h') {
        const std::uint32_t head[] = {htonl(rdma::control_magic), htonl(rdma::control_version),
                                      htonl(static_cast<std::uint32_t>(sent.size()))};
        sent.insert(0, reinterpret_cast<const char*>(head), sizeof head);
    }
    const Pair pair(sent);
    rdma::Connection connection(pair.socket_under_test, "x", 1);
    connection.on_alive([](double) {});
    connection.check();
    const Json hello = connection.receive("hello");
    const rdma::Workload work = rdma::read_workload(hello.value("workload", Json()));
    const std::size_t memory = rdma::Layout::memory(work);
    for (const std::size_t bytes : work.sizes) {
        const rdma::Layout layout(work, bytes);
        // The last message of the last queue pair must lie within the memory.
        if (layout.incoming(work.qps - 1, layout.slots - 1) + bytes > memory) std::abort();
        if (rdma::moderation(work, bytes) < 1) std::abort();
    }
}

// --- The control messages of UDP

std::vector<Input> seed_udp() {
    node::End end;
    end.run_number = 7;
    end.sent = {3, 4};
    std::vector<Input> inputs;
    for (const std::string& text :
         {node::encode(node::Hello{7, 8900, 1000, 2, 1e6, 1.0, "h"}),
          node::encode(node::Welcome{7, 12, "h"}), node::encode(node::Refusal{7, "no", "yes"}),
          node::encode(end), node::encode(node::Report{7, 1000, 0, 1e6})})
        inputs.push_back(fuzz::input_of(text));
    return inputs;
}

void read_udp(const std::uint8_t* data, std::size_t size) {
    const std::string text = text_of(data, size);
    const auto read = node::decode(text);
    const node::Seal seal(token());
    if (seal.open(text)) std::abort();  // it is not signed
    if (seal.open(seal.sign(text)).has_value() != read.has_value()) std::abort();
    if (size >= node::DataHeader::bytes) {
        node::DataHeader header;
        header.get(reinterpret_cast<const std::byte*>(data));
    }
}

}  // namespace

std::vector<Reader> readers() {
    return {{"proof", seed_proof, read_proof},
            {"peers", seed_peers, read_peers},
            {"rdma", seed_control, read_control},
            {"udp", seed_udp, read_udp}};
}
