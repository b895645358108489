// The proofs of the handshake, and both of its sides (see handshake.hpp).
#include "session/handshake.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/crypto_verify_32.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace assay::session {
namespace {

constexpr std::string_view listener_role = "listener", caller_role = "caller";

// HMAC-SHA-256 with the token as key.
struct Mac {
    crypto_auth_hmacsha256_state state;
    explicit Mac(const Token& token) {
        crypto_auth_hmacsha256_init(&state, token.bytes.data(), token.bytes.size());
    }
    void add(const void* data, std::size_t bytes) {
        crypto_auth_hmacsha256_update(&state, static_cast<const unsigned char*>(data), bytes);
    }
    // Adds the length too, so that two different sequences of texts never give the same bytes.
    void add(std::string_view text) {
        const auto length = static_cast<std::uint64_t>(text.size());
        add(&length, sizeof length);
        add(text.data(), text.size());
    }
    Proof final() {
        Proof proof;
        crypto_auth_hmacsha256_final(&state, proof.data());
        return proof;
    }
};

bool fill(Nonce& nonce) {
    return getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size());
}

// Receives (`event` POLLIN) or sends (POLLOUT) all bytes before the deadline, in milliseconds of
// the monotonic clock. Returns false if that fails.
bool transfer_all(int fd, void* data, std::size_t bytes, short event, long long deadline) {
    auto* next = static_cast<char*>(data);
    while (bytes) {
        const ssize_t n = event == POLLIN ? recv(fd, next, bytes, MSG_DONTWAIT)
                                          : send(fd, next, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            next += n;
            bytes -= static_cast<std::size_t>(n);
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return false;
        const long long remaining = deadline - monotonic_ms();
        if (remaining <= 0) return false;
        pollfd polled{fd, event, 0};
        poll(&polled, 1, static_cast<int>(remaining));
    }
    return true;
}

}  // namespace

long long monotonic_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1'000'000;
}

Proof prove(const Token& token, std::string_view purpose, std::string_view role,
            const Nonce& listener, const Nonce& caller) {
    Mac mac(token);
    mac.add(std::string_view(handshake_magic.data(), handshake_magic.size()));
    mac.add(purpose);
    mac.add(role);
    mac.add(listener.data(), listener.size());
    mac.add(caller.data(), caller.size());
    return mac.final();
}

bool equal(const Proof& a, const Proof& b) { return crypto_verify_32(a.data(), b.data()) == 0; }

Proof sign(const Token& token, std::string_view text) {
    Mac mac(token);
    mac.add(text);
    return mac.final();
}

Caller::Caller(int fd, std::string address)
    : fd_(fd), address_(std::move(address)), connected_at_ms_(monotonic_ms()) {
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

Caller::~Caller() {
    if (fd_ >= 0) close(fd_);
}

Caller::Caller(Caller&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      address_(std::move(other.address_)),
      connected_at_ms_(other.connected_at_ms_),
      challenged_(other.challenged_),
      challenge_(other.challenge_),
      response_(other.response_),
      received_(other.received_) {}

int Caller::release() { return std::exchange(fd_, -1); }

Caller::State Caller::advance(const Token& token, std::string_view purpose) {
    if (!challenged_) {
        challenge_.magic = handshake_magic;
        // A new socket takes 40 bytes at once.
        if (!fill(challenge_.nonce) || send(fd_, &challenge_, sizeof challenge_, MSG_NOSIGNAL) !=
                                           static_cast<ssize_t>(sizeof challenge_))
            return State::refused;
        challenged_ = true;
        return State::waiting;
    }
    while (received_ < sizeof response_) {
        const ssize_t n = recv(fd_, reinterpret_cast<char*>(&response_) + received_,
                               sizeof response_ - received_, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::waiting;
        if (n <= 0) return State::refused;
        received_ += static_cast<std::size_t>(n);
        // Wrong first bytes: the caller is another program.
        if (std::memcmp(response_.magic.data(), handshake_magic.data(),
                        std::min(received_, handshake_magic.size())) != 0)
            return State::refused;
    }
    if (!equal(response_.proof,
               prove(token, purpose, caller_role, challenge_.nonce, response_.nonce)))
        return State::refused;
    const Proof welcome = prove(token, purpose, listener_role, challenge_.nonce, response_.nonce);
    return send(fd_, welcome.data(), welcome.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(welcome.size())
               ? State::admitted
               : State::refused;
}

bool introduce(int fd, const Token& token, std::string_view purpose, int limit_ms) {
    const long long deadline = monotonic_ms() + limit_ms;
    Challenge challenge;
    Response response{handshake_magic, {}, {}};
    Proof welcome;
    if (!transfer_all(fd, &challenge, sizeof challenge, POLLIN, deadline) ||
        challenge.magic != handshake_magic || !fill(response.nonce))
        return false;
    response.proof = prove(token, purpose, caller_role, challenge.nonce, response.nonce);
    return transfer_all(fd, &response, sizeof response, POLLOUT, deadline) &&
           transfer_all(fd, welcome.data(), welcome.size(), POLLIN, deadline) &&
           equal(welcome, prove(token, purpose, listener_role, challenge.nonce, response.nonce));
}

}  // namespace assay::session
