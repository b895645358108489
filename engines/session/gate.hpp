// The callers of a port that have not proved themselves yet. Their number and their time are
// limited. Where there are too many, the oldest goes: a caller that belongs to the run proves
// itself within a round trip, so strangers cannot keep it out.
#pragma once

#include <list>
#include <string>
#include <string_view>

#include "session/handshake.hpp"

namespace assay::session {

class Gate {
public:
    // `most`: callers at a time; `limit_ms`: how long each may take.
    Gate(const Token& token, std::string_view purpose, std::size_t most,
         int limit_ms = handshake_limit_ms)
        : token_(token), purpose_(purpose), most_(most), limit_ms_(limit_ms) {}

    // Takes a new connection. Returns false if it was refused at once.
    bool add(int fd, std::string address);
    bool has(int fd) const;
    // Reads from a caller. Admitted: `socket` is its socket, which the caller of this function now
    // owns, and `address` its address.
    Caller::State advance(int fd, int& socket, std::string& address);
    // Drops the callers whose time is over.
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
    std::size_t most_;
    int limit_ms_;
    std::list<Caller> callers_;  // the oldest first
    std::size_t refused_ = 0;
    std::string first_refused_;
};

// The address of the other end of a socket, as text.
std::string peer_address(int fd);

}  // namespace assay::session
