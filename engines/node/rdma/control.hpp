// The TCP control connection between the two sides of an RDMA measurement. The sides exchange their
// addresses, synchronise the start of each part, and exchange results.
//
// A message is a header (magic, version, length as big-endian 32-bit words) and JSON. JSON is easy
// to read in a trace, and no message is timed. Magic and version detect other programs on the port.
// With a token, a connection begins with the proof that both sides know it (session/handshake.hpp).
// Every wait has a limit. A working side sends "alive" once a second, which renews the other's
// limit; a failing side sends "abort" with the reason before it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/record.hpp"
#include "node/udp/socket.hpp"
#include "session/gate.hpp"

namespace assay::rdma {

inline constexpr std::uint32_t control_magic = 0x41525350;  // "ARSP"
inline constexpr std::uint32_t control_version = 2;
inline constexpr std::uint32_t max_message_bytes = 1 << 20;  // 1024 queue pairs take about 20 KiB

// An error that the other side caused. This side sends no "abort" for it.
struct PeerError : Error {
    using Error::Error;
};

// The other end is not Assay: the first word of its message is not the magic.
struct ForeignError : PeerError {
    using PeerError::PeerError;
};

// The value of a message's member that is a whole number of at most `max`. Throws PeerError for
// anything else.
std::uint64_t whole_number(const Json& value, std::uint64_t max);

class Connection {
public:
    // `peer` names the other side in errors; `limit` is in seconds, for each message.
    Connection(int socket, std::string peer, double limit);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    const std::string& peer() const { return peer_; }
    void set_peer(std::string name) { peer_ = std::move(name); }
    // Seconds to wait for each message from now on.
    void set_limit(double seconds) { limit_ = seconds; }
    // Sets a function that is called with the progress (0 to 1) in each "alive" message.
    void on_alive(std::function<void(double)> callback) { on_alive_ = std::move(callback); }

    void send(const Json& message);
    // The next message. Throws PeerError if its "type" is not `type`.
    Json receive(std::string_view type);
    // Sends a message and returns the other side's message of the same type: a barrier.
    Json exchange(const Json& message);
    // Sends "alive" with this side's progress (0 to 1).
    void send_alive(double done);
    // Sends the reason why this side ends; ignores failures.
    void abort(const std::string& what) noexcept;
    // For a side that waits for something other than a message: throws PeerError if the other side
    // has closed the connection or has sent "abort". Returns after `wait` seconds without a
    // message.
    void check(double wait = 0);

private:
    Json read_message(Nanoseconds deadline);
    void read(void* data, std::size_t bytes, Nanoseconds deadline);
    std::uint32_t read_word(Nanoseconds deadline);
    [[noreturn]] void throw_disconnected() const;
    [[noreturn]] static void throw_aborted(const Json& abort, const std::string& peer);

    int socket_;
    std::string peer_;
    double limit_;
    std::function<void(double)> on_alive_;
    std::optional<Json> early_message_;  // check() has read it; the next receive() returns it
};

// The purpose of the port in the handshake (session/handshake.hpp).
constexpr std::string_view control_purpose = "rdma-control";

// The listening side, on one address. The constructor throws Error if the port is in use.
class Listener {
public:
    // `token`: only callers that prove that they know it are accepted.
    explicit Listener(const node::Address& address,
                      const std::optional<session::Token>& token = std::nullopt);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    // The socket and address of the next connection; none if there is none in `limit` seconds.
    struct Incoming {
        int socket;
        std::string address;
    };
    std::optional<Incoming> accept(double limit);
    // How many callers without the token were refused.
    std::size_t refused() const { return gate_ ? gate_->refused() : 0; }

private:
    std::optional<Incoming> admit(Nanoseconds deadline);
    void report_refused();

    int socket_;
    std::optional<session::Gate> gate_;
    bool reported_ = false;
};

// Connects to the first address of the host that answers. Returns the socket; throws Error if none
// does.
int connect_to(const std::string& host, int port, double limit);
// Proves to the listening side that this one knows the token. Throws Error if that side does not.
void prove_token(int socket, const std::string& peer, const session::Token& token);

}  // namespace assay::rdma
