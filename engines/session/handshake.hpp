// A connection begins with a proof of both sides that they know the token of the run. The token
// itself never travels, and a recorded conversation is of no use: each proof covers a fresh random
// number of the other side.
//
//   listener  challenge   "assay-s1", random number (32 bytes)
//   caller    response    "assay-s1", random number (32 bytes), HMAC-SHA-256 (32 bytes)
//   listener  welcome     HMAC-SHA-256 (32 bytes)
//
// The HMACs cover the role, the purpose of the port and both random numbers. So neither side can be
// made to answer for the other, and no proof holds for another port. What follows is neither
// encrypted nor signed: see docs/security.md.
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

// What both sides compute. `role`: of the side that proves itself.
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

    // The first call sends the challenge, the later ones read what has arrived. Refused: it is
    // wrong, or the connection is gone.
    State advance(const Token& token, std::string_view purpose);
    int fd() const { return fd_; }
    const std::string& address() const { return address_; }
    // Milliseconds of the monotonic clock when it came.
    long long since() const { return since_; }
    // Hands out the socket of an admitted caller.
    int release();

private:
    int fd_;
    std::string address_;
    long long since_;
    bool challenged_ = false;
    Challenge challenge_{};
    Response response_{};
    std::size_t received_ = 0;
};

constexpr int handshake_limit_ms = 5000;  // for a caller to prove itself

// The caller's side, on a connected socket, blocking or not. False: the other side does not know
// the token, is another program, or does not answer in time.
bool introduce(int fd, const Token& token, std::string_view purpose,
               int limit_ms = handshake_limit_ms);

long long monotonic_ms();

}  // namespace assay::session
