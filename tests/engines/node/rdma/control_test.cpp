// Tests of the control protocol of RDMA measurements: valid and invalid messages over a socket
// pair, and connections over TCP.
#include "node/rdma/control.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

using namespace assay;
using namespace assay::rdma;

namespace {

// A connection of the protocol; its peer is a plain socket.
struct TestConnection {
    explicit TestConnection(double limit = 5) {
        int sockets[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
        connection = std::make_unique<Connection>(sockets[0], "h7", limit);
        peer = sockets[1];
    }
    ~TestConnection() { close_peer(); }
    void write(const std::string& text) const {
        REQUIRE(::write(peer, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    void close_peer() {
        if (peer >= 0) close(peer);
        peer = -1;
    }
    std::unique_ptr<Connection> connection;
    int peer = -1;
};

std::string big_endian_word(std::uint32_t value) {
    value = htonl(value);
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string framed(const std::string& body, std::uint32_t version = control_version) {
    return big_endian_word(control_magic) + big_endian_word(version) +
           big_endian_word(static_cast<std::uint32_t>(body.size())) + body;
}

std::string receive_or_error(TestConnection& test, const char* type = "hello") {
    try {
        return test.connection->receive(type).dump();
    } catch (const Error& error) {
        return std::string(error.what()) + "; " + error.fix;
    }
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

node::Address loopback(int port) { return node::resolve("127.0.0.1", port).front(); }

}  // namespace

TEST_CASE("messages of any length pass in both directions") {
    int sockets[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    Connection left(sockets[0], "left", 5), right(sockets[1], "right", 5);
    const std::string large(max_message_bytes / 2, 'x');  // more than a socket's buffer
    std::jthread other_side([&] { right.exchange({{"type", "address"}, {"size", 2}}); });
    const Json reply = left.exchange({{"type", "address"}, {"text", large}});
    CHECK(reply["size"] == 2);
}

TEST_CASE("another protocol is recognised by its first bytes") {
    for (const char* text :
         {"0000:0011:abcdef:000209:55dc8efe8000", "GET / HTTP/1.0\r\n\r\n", "SSH-"}) {
        TestConnection test;
        test.write(text);
        CHECK_THROWS_AS(test.connection->receive("hello"), ForeignError);
    }
}

TEST_CASE("wrong version, length, JSON and message types are refused") {
    const std::pair<std::string, const char*> wrong[] = {
        {framed("{}", 1), "version 1 of this measurement's protocol, this side version 2"},
        {big_endian_word(control_magic) + big_endian_word(control_version) +
             big_endian_word(max_message_bytes + 1),
         "announces a message of 1048577 bytes"},
        {framed("{\"type\":"), "cannot be read"},
        {framed("[1,2]"), "cannot be read"},
        {framed("{\"type\":3}"), "cannot be read"},
        {framed("{\"type\":\"done\"}"), "h7 sent 'done' instead of 'hello'"},
        {framed("{\"type\":\"abort\",\"what\":\"no memory\"}"), "h7 gave up: no memory"},
        {framed("{\"type\":\"abort\",\"what\":3}"), "h7 gave up: without a reason"},
        {framed("{\"type\":\"\\u001b[2J\"}"), "h7 sent '?[2J' instead of 'hello'"},
    };
    for (const auto& [text, expected] : wrong) {
        CAPTURE(expected);
        TestConnection test;
        test.write(text);
        CHECK(contains(receive_or_error(test), expected));
    }
}

TEST_CASE("numbers that are not integers in the expected range are refused") {
    CHECK(whole_number(Json(65535U), 65535) == 65535);
    for (const Json& value : {Json(65536U), Json(-1), Json(7e20), Json(1.5), Json("1"), Json()})
        CHECK_THROWS_AS(whole_number(value, 65535), PeerError);
}

TEST_CASE("a closed connection is reported, also within a message") {
    const std::string message = framed("{\"type\":\"hello\"}");
    for (std::size_t cut = 0; cut < message.size(); ++cut) {
        CAPTURE(cut);
        TestConnection test;
        test.write(message.substr(0, cut));
        test.close_peer();
        CHECK(contains(receive_or_error(test), "h7 has gone away"));
    }
}

TEST_CASE("silence has a limit, also within a message") {
    for (const std::string& text : {std::string(), framed("{\"type\":\"hello\"}").substr(0, 14)}) {
        TestConnection test(0.05);
        test.write(text);
        CHECK(contains(receive_or_error(test), "no message from h7 for 0.05 s"));
    }
}

TEST_CASE("alive messages renew the limit and report progress" *
          doctest::test_suite("acceptance")) {
    TestConnection test(0.6);
    std::vector<double> progress;
    test.connection->on_alive([&](double done) { progress.push_back(done); });
    std::jthread other_side([&] {
        for (const char* body : {"{\"type\":\"alive\",\"done\":0.25}",
                                 "{\"type\":\"alive\",\"done\":0.5}", "{\"type\":\"done\"}"}) {
            std::this_thread::sleep_for(std::chrono::milliseconds(250));
            test.write(framed(body));
        }
    });
    CHECK(contains(receive_or_error(test, "done"), "done"));
    CHECK(progress == std::vector<double>{0.25, 0.5});
}

TEST_CASE("check() detects the end of the connection, and keeps messages that came early") {
    TestConnection test;
    test.connection->check();  // silent: nothing happens
    test.write(framed("{\"type\":\"alive\"}") + framed("{\"type\":\"done\",\"rate\":1}"));
    test.connection->check();
    test.connection->check();
    CHECK(contains(receive_or_error(test, "done"), "rate"));
    test.write(framed("{\"type\":\"abort\",\"what\":\"stopped\"}"));
    CHECK_THROWS_WITH_AS(test.connection->check(), "h7 gave up: stopped", PeerError);
    test.close_peer();
    CHECK_THROWS_WITH_AS(test.connection->check(), "h7 has gone away", PeerError);
    CHECK_THROWS_AS(test.connection->send({{"type", "alive"}}), PeerError);
    test.connection->abort("too late");  // does not throw
}

TEST_CASE("a side that does not read cannot block the other for ever") {
    TestConnection test(0.05);
    const Json large_message = {{"type", "x"}, {"text", std::string(max_message_bytes / 2, 'x')}};
    CHECK_THROWS_AS(
        {
            for (int i = 0; i < 100; ++i) test.connection->send(large_message);
        },
        PeerError);
}

TEST_CASE("listening, connecting, and a port that is taken") {
    int port = 0;
    std::unique_ptr<Listener> listener;
    for (port = 20000 + getpid() % 20000; listener == nullptr; ++port) try {
            listener = std::make_unique<Listener>(loopback(port));
            break;
        } catch (const Error&) {  // the port is in use
        }
    CHECK_FALSE(listener->accept(0.01));
    // On that address and no other: 127.0.0.2 is this machine too.
    CHECK_THROWS_WITH_AS(connect_to("127.0.0.2", port, 5),
                         fmt::format("no process listens on 127.0.0.2:{}", port).c_str(), Error);
    CHECK_THROWS_AS(Listener{loopback(port)}, Error);
    Connection client(connect_to("127.0.0.1", port, 5), "server", 5);
    const auto caller = listener->accept(5);
    REQUIRE(caller);
    CHECK(caller->address == "127.0.0.1");
    Connection server(caller->socket, caller->address, 5);
    client.send({{"type", "hello"}, {"host", "h1"}});
    CHECK(server.receive("hello")["host"] == "h1");
    listener.reset();
    try {
        connect_to("127.0.0.1", port, 5);
        FAIL("connected to a closed port");
    } catch (const Error& error) {
        CHECK(contains(error.what(), "no process listens on 127.0.0.1:"));
    }
    CHECK_THROWS_AS(connect_to("no-such-host.invalid", port, 5), Error);
}

TEST_CASE("a listener with a token admits a caller of its run, and no strangers") {
    session::Token token, other_token;
    token.bytes.fill(1);
    other_token.bytes.fill(2);
    int port = 0;
    std::unique_ptr<Listener> listener;
    for (port = 20000 + getpid() % 20000; listener == nullptr; ++port) try {
            listener = std::make_unique<Listener>(loopback(port), token);
            break;
        } catch (const Error&) {  // the port is in use
        }
    const auto connect_to_listener = [port] { return connect_to("127.0.0.1", port, 5); };
    std::vector<int> strangers;
    for (int k = 0; k < 30; ++k) strangers.push_back(connect_to_listener());  // silent
    const std::string hello = framed("{\"type\":\"hello\"}");  // a side without a token
    REQUIRE(write(strangers[3], hello.data(), hello.size()) == static_cast<ssize_t>(hello.size()));
    CHECK_FALSE(listener->accept(0.3));

    std::string refusal;
    std::jthread callers([&] {
        try {
            prove_token(connect_to_listener(), "h7", other_token);
        } catch (const Error& error) {
            refusal = error.what();
        }
        const int socket = connect_to_listener();
        prove_token(socket, "h7", token);
        Connection(socket, "h7", 5).send({{"type", "hello"}});
    });
    const auto caller = listener->accept(20);
    REQUIRE(caller);
    CHECK(Connection(caller->socket, caller->address, 5).receive("hello")["type"] == "hello");
    callers.join();
    CHECK(refusal == "h7 does not prove that it belongs to this run");
    CHECK(listener->refused() == 2);
    for (const int stranger : strangers) close(stranger);
}
