// The TCP connection over which the two sides of an RDMA measurement agree: who they are, where
// their memory is, when each part begins, and what came of it.
//
// A message is a header (magic, version, length; big-endian words of 32 bits) and JSON. JSON,
// because nothing of it is timed and a side can be read in a trace; a magic and a version, because
// what answers at a port may be anything. Every wait has a limit. A side that works says so once a
// second ("alive"), which renews the other's limit; one that fails says why ("abort") before it
// ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/record.hpp"

namespace assay::rdma {

inline constexpr std::uint32_t control_magic = 0x41525350;  // "ARSP"
inline constexpr std::uint32_t control_version = 1;
inline constexpr std::uint32_t longest_message = 1 << 20;  // 1024 queue pairs take some 20 KiB

// What the other side caused: it needs not be told of it.
struct PeerError : Error {
    using Error::Error;
};

// What is connected does not speak this protocol.
struct ForeignError : PeerError {
    using PeerError::PeerError;
};

class Connection {
public:
    // `peer` names the other side in errors; both limits in seconds, for each message.
    Connection(int socket, std::string peer, double limit);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    const std::string& peer() const { return peer_; }
    void call_peer(std::string name) { peer_ = std::move(name); }
    // The next wait is for something that takes the other side longer.
    void set_limit(double seconds) { limit_ = seconds; }
    // Called with the share that is done (0..1) when the other side says that it is alive.
    void on_alive(std::function<void(double)> heard) { heard_ = std::move(heard); }

    void send(const Json& message);
    // The next message, whose "type" has to be `type`.
    Json receive(std::string_view type);
    // Sends mine, gives the other side's: a barrier.
    Json exchange(const Json& mine);
    void alive(double done);
    // Best effort: the reason why this side ends.
    void abort(const std::string& what) noexcept;
    // Throws when the other side has gone or has said that it ends; returns when it has been silent
    // for `wait` seconds. For a side that waits for something else than a message.
    void check(double wait = 0);

private:
    Json next(Nanoseconds deadline);
    void read(void* data, std::size_t bytes, Nanoseconds deadline);
    std::uint32_t read_word(Nanoseconds deadline);
    [[noreturn]] void gone() const;
    [[noreturn]] static void fail(const Json& abort, const std::string& peer);

    int socket_;
    std::string peer_;
    double limit_;
    std::function<void(double)> heard_;
    std::optional<Json> early_;  // read by check(), to be received yet
};

// The listening side. Throws Error when the port is taken.
class Listener {
public:
    explicit Listener(int port);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    // The socket and the address of the next that connects; none when nobody does in `limit`
    // seconds.
    struct Caller {
        int socket;
        std::string address;
    };
    std::optional<Caller> accept(double limit);

private:
    int socket_;
};

// The socket of a connection to the first address of the host that answers. Throws Error when none
// does.
int connect_to(const std::string& host, int port, double limit);

}  // namespace assay::rdma
