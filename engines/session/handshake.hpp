// The handshake at the start of a connection: both sides prove that they know the token of the run.
// The token itself is never sent. A recorded handshake cannot be replayed, because each proof
// covers a fresh random number of the other side.
//
//   listener  challenge   "assay-s1", random number (32 bytes)
//   caller    response    "assay-s1", random number (32 bytes), HMAC-SHA-256 (32 bytes)
//   listener  welcome     HMAC-SHA-256 (32 bytes)
//
// The HMACs cover the role, the purpose of the port and both random numbers. So neither side can be
// made to answer for the other, and no proof holds for another port. Messages after the handshake
// are neither encrypted nor signed: see docs/security.md.
//
// Compiled without exceptions, because it is loaded into other programs.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "session/token.hpp"

namespace assay::session {

using Nonce = std::array<unsigned char, 32>;
using Proof = std::array<unsigned char, 32>;
constexpr std::array<char, 8> handshake_magic{'a', 's', 's', 'a', 'y', '-', 's', '1'};

struct Challenge {
    std::array<char, 8> magic;
    Nonce nonce;
};
struct Response {
    std::array<char, 8> magic;
    Nonce nonce;
    Proof proof;
};
static_assert(sizeof(Challenge) == 40 && sizeof(Response) == 72);

// The proof of the side with `role` ("listener" or "caller"); the other side computes the same and
// compares. `listener` and `caller` are the random numbers of both sides.
Proof prove(const Token& token, std::string_view purpose, std::string_view role,
            const Nonce& listener, const Nonce& caller);
// Takes the same time for every proof.
bool equal(const Proof& a, const Proof& b);

// HMAC-SHA-256 of a text.
Proof sign(const Token& token, std::string_view text);

// A connection whose caller has not proved itself yet. Owns the socket, which it makes
// non-blocking, and never waits.
class Caller {
public:
    enum class State { waiting, admitted, refused };
    Caller(int fd, std::string address);
    ~Caller();
    Caller(Caller&& other) noexcept;
    Caller& operator=(Caller&&) = delete;

    // The first call sends the challenge; later calls read the bytes that have arrived. Refused:
    // the response is wrong, or the connection is closed.
    State advance(const Token& token, std::string_view purpose);
    int fd() const { return fd_; }
    const std::string& address() const { return address_; }
    // When the connection was accepted, in milliseconds of the monotonic clock.
    long long connected_at_ms() const { return connected_at_ms_; }
    // Passes the ownership of an admitted caller's socket on.
    int release();

private:
    int fd_;
    std::string address_;
    long long connected_at_ms_;
    bool challenged_ = false;
    Challenge challenge_{};
    Response response_{};
    std::size_t received_ = 0;
};

constexpr int handshake_limit_ms = 5000;  // for a caller to prove itself

// The caller's side of the handshake, on a connected socket, blocking or not. Returns false if the
// other side does not know the token, is another program, or does not answer in time.
bool introduce(int fd, const Token& token, std::string_view purpose,
               int limit_ms = handshake_limit_ms);

long long monotonic_ms();

}  // namespace assay::session
