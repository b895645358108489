// Tests of the handshake of a connection, over socket pairs. A caller that knows the token is
// admitted. Any other caller is refused, whatever it sends and however slowly.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "session/gate.hpp"
#include "session/handshake.hpp"

using namespace assay::session;

namespace {

constexpr std::string_view purpose = "test";

struct Pair {
    int ends[2];
    Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0); }
    ~Pair() { close(ends[1]); }
};

Caller::State advance_to_end(Caller& caller, const Token& token,
                             std::string_view purpose_of_listener = purpose) {
    for (;;) {
        const auto state = caller.advance(token, purpose_of_listener);
        if (state != Caller::State::waiting) return state;
        pollfd polled{caller.fd(), POLLIN, 0};
        if (poll(&polled, 1, 5000) <= 0) return state;
    }
}

struct HandshakeResult {
    Caller::State listener;
    bool caller;
};

// Runs the handshake between a listener and a caller with the given tokens and purposes.
HandshakeResult run_handshake(const Token& listener, std::string_view listener_purpose,
                              const Token& caller, std::string_view caller_purpose) {
    Pair pair;
    HandshakeResult result{};
    std::thread thread(
        [&] { result.caller = introduce(pair.ends[1], caller, caller_purpose, 3000); });
    {
        Caller entry(pair.ends[0], "peer");
        result.listener = advance_to_end(entry, listener, listener_purpose);
    }  // closes the socket, so that a caller that waits for the welcome ends
    thread.join();
    return result;
}

Token token_of(int value) {
    Token token;
    token.bytes.fill(static_cast<unsigned char>(value));
    return token;
}

// The listener's state after a stranger has sent `bytes`, in pieces of `piece` bytes.
Caller::State send_to_listener(const std::string& bytes, std::size_t piece) {
    Pair pair;
    Caller caller(pair.ends[0], "stranger");
    auto state = caller.advance(token_of(1), purpose);
    for (std::size_t k = 0; k < bytes.size() && state == Caller::State::waiting; k += piece) {
        const std::string part = bytes.substr(k, piece);
        REQUIRE(send(pair.ends[1], part.data(), part.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(part.size()));
        state = caller.advance(token_of(1), purpose);
    }
    return state;
}

}  // namespace

TEST_CASE("two sides with the same token accept each other") {
    const auto token = make_token();
    REQUIRE(token);
    const auto [listener, caller] = run_handshake(*token, purpose, *token, purpose);
    CHECK(listener == Caller::State::admitted);
    CHECK(caller);
}

TEST_CASE("another token, or the token for another port, is refused by both sides") {
    for (const auto& [listener, caller] :
         {run_handshake(token_of(1), purpose, token_of(2), purpose),
          run_handshake(token_of(1), purpose, token_of(1), "another")}) {
        CHECK(listener == Caller::State::refused);
        CHECK(!caller);
    }
}

TEST_CASE("a caller recognises a listener that does not know the token") {
    Pair pair;
    const Token token = token_of(1);
    std::thread impostor([&] {
        Challenge challenge{handshake_magic, {}};
        Response response;
        Proof welcome{};
        (void)!send(pair.ends[0], &challenge, sizeof challenge, MSG_NOSIGNAL);
        (void)!recv(pair.ends[0], &response, sizeof response, MSG_WAITALL);
        // The impostor does not know the token, so it sends back the proof that it has received.
        welcome = response.proof;
        (void)!send(pair.ends[0], &welcome, sizeof welcome, MSG_NOSIGNAL);
    });
    CHECK(!introduce(pair.ends[1], token, purpose, 3000));
    impostor.join();
    close(pair.ends[0]);
}

TEST_CASE("a response that was recorded from another connection is refused") {
    const Token token = token_of(1);
    Pair pair;
    Response recorded{handshake_magic, {}, {}};
    {
        Caller caller(pair.ends[0], "peer");
        REQUIRE(caller.advance(token, purpose) == Caller::State::waiting);
        Challenge challenge;
        REQUIRE(recv(pair.ends[1], &challenge, sizeof challenge, MSG_WAITALL) == sizeof challenge);
        recorded.proof = prove(token, purpose, "caller", challenge.nonce, recorded.nonce);
        REQUIRE(send(pair.ends[1], &recorded, sizeof recorded, 0) == sizeof recorded);
        REQUIRE(caller.advance(token, purpose) ==
                Caller::State::admitted);  // valid in its own connection
    }
    const std::string replayed(reinterpret_cast<const char*>(&recorded), sizeof recorded);
    CHECK(send_to_listener(replayed, replayed.size()) == Caller::State::refused);
}

TEST_CASE("invalid bytes are refused, at once if the magic is wrong") {
    CHECK(send_to_listener("GET / HTTP/1.1\r\n", 1) == Caller::State::refused);
    CHECK(send_to_listener("x", 1) == Caller::State::refused);
    const std::string magic(handshake_magic.data(), handshake_magic.size());
    CHECK(send_to_listener(magic + std::string(64, '\0'), 72) == Caller::State::refused);
    CHECK(send_to_listener(magic + std::string(64, '\xff'), 1) == Caller::State::refused);
    CHECK(send_to_listener(magic + std::string(63, '\0'), 7) == Caller::State::waiting);
}

TEST_CASE("a caller does not wait for a silent listener") {
    Pair pair;
    const long long from = monotonic_ms();
    CHECK(!introduce(pair.ends[1], token_of(1), purpose, 50));
    CHECK(monotonic_ms() - from >= 50);
    close(pair.ends[0]);
}

TEST_CASE("a gate has a bounded number of unauthenticated callers, and drops the oldest") {
    const Token token = token_of(1);
    Gate gate(token, purpose, 4);
    std::vector<Pair> silent(20);
    for (auto& pair : silent) CHECK(gate.add(pair.ends[0], "stranger"));
    CHECK(gate.callers().size() == 4);
    CHECK(gate.refused() == 16);
    CHECK(gate.first_refused() == "stranger");

    Pair pair;
    REQUIRE(gate.add(pair.ends[0], "friend"));
    bool is_admitted = false;
    std::thread caller([&] { is_admitted = introduce(pair.ends[1], token, purpose, 3000); });
    int socket = -1;
    std::string address;
    auto state = Caller::State::waiting;
    while (state == Caller::State::waiting) {
        pollfd polled{pair.ends[0], POLLIN, 0};
        REQUIRE(poll(&polled, 1, 5000) == 1);
        state = gate.advance(pair.ends[0], socket, address);
    }
    caller.join();
    CHECK(is_admitted);
    CHECK(socket == pair.ends[0]);
    CHECK(address == "friend");
    CHECK(!gate.has(socket));
    close(socket);
}

TEST_CASE("a caller that sends its bytes too slowly is dropped at the time limit") {
    Gate gate(token_of(1), purpose, 4, 20);
    Pair pair;
    REQUIRE(gate.add(pair.ends[0], "stranger"));
    const long long until = monotonic_ms() + 5000;
    for (std::size_t k = 0; !gate.empty() && monotonic_ms() < until; ++k) {
        (void)!send(pair.ends[1], &handshake_magic[k % 8], 1, MSG_NOSIGNAL);
        int socket = -1;
        std::string address;
        gate.advance(pair.ends[0], socket, address);
        gate.expire();
        usleep(1000);
    }
    CHECK(gate.empty());
    CHECK(gate.refused() == 1);
}

TEST_CASE("a token is read from text as it was written") {
    const Token token = *make_token();
    const auto read = token_from(to_text(token));
    REQUIRE(read);
    CHECK(read->bytes == token.bytes);
    CHECK(make_token()->bytes != token.bytes);
    for (const std::string text : {std::string(), std::string(63, '0'), std::string(64, 'g'),
                                   std::string(65, '0'), std::string(64, ' ')})
        CHECK(!token_from(text));
}
