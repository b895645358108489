// Connections to a port that have not authenticated yet. Their number and their time are limited.
// If there are too many, the oldest is closed. A process of the run authenticates within a round
// trip, so connections of strangers cannot keep it out.
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "session/handshake.hpp"

namespace assay::session {

class Gate {
public:
    // `purpose` names the port's use (see handshake.hpp). `max_callers` may authenticate at a time,
    // each within `limit_ms` milliseconds.
    Gate(const Token& token, std::string_view purpose, std::size_t max_callers,
         int limit_ms = handshake_limit_ms)
        : token_(token), purpose_(purpose), max_callers_(max_callers), limit_ms_(limit_ms) {}

    // Takes ownership of a new connection. Returns false if it was refused at once.
    bool add(int fd, std::string address);
    // Whether `fd` is a connection that has not authenticated yet.
    bool has(int fd) const;
    // Continues the handshake on `fd` with the bytes that have arrived. If the result is
    // `admitted`, sets `socket` and `address` and passes the ownership of the socket on.
    Caller::State advance(int fd, int& socket, std::string& address);
    // Closes the connections whose time is over.
    void expire();

    bool empty() const { return callers_.empty(); }
    const std::list<Caller>& callers() const { return callers_; }
    // How many were refused or dropped, and the address of the first.
    std::size_t refused() const { return refused_; }
    const std::string& first_refused() const { return first_refused_; }

private:
    void refuse(std::list<Caller>::iterator caller);

    Token token_;
    std::string purpose_;
    std::size_t max_callers_;
    int limit_ms_;
    std::list<Caller> callers_;  // the oldest first
    std::size_t refused_ = 0;
    std::string first_refused_;
};

// The address of the other end of a socket, as text.
std::string peer_address(int fd);

}  // namespace assay::session
