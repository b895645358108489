// Start-up of ranks without MPI. Each rank listens on a port that the kernel chooses, prints it on
// one line, and reads one line from standard input: the table of all ranks, and the token of the
// job. The launcher (python/assay/launch/ranks.py) collects and distributes these lines.
//
//   out  {"kind":"listening","rank":1,"host":"h2","address":"10.0.0.2","port":40001,
//         "version":"0.1.0/1"}
//   in   {"kind":"peers","token":"<64 digits>","incarnation":0,
//         "peers":[{"rank":0,"address":"10.0.0.1","port":40000},...]}
//
// A port of 0 marks a rank that has ended, or that will connect by itself.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "session/token.hpp"

namespace assay::direct {

// The version of the engine and of the messages between ranks. All ranks of a job have the same.
std::string version();

// An IPv4 or IPv6 address with a port.
struct Address {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
    std::uint16_t port() const;
    void set_port(std::uint16_t port);
    std::string text() const;  // without the port
};
// Throws Error if the text is not a numeric address.
Address read_address(const std::string& text, std::uint16_t port);
// The address of an interface, IPv4 before IPv6; without a name, that of the default route. Throws
// Error if there is none.
Address own_address(const std::string& interface);

// The sockets by which a rank is reached: one for connections and one for heartbeats, on the same
// port number.
class Listener {
public:
    // Throws Error if no port is free.
    explicit Listener(Address address);
    ~Listener();
    Listener(Listener&& other) noexcept;
    Listener& operator=(Listener&&) = delete;

    const Address& address() const { return address_; }
    int connections() const { return connections_; }
    int heartbeats() const { return heartbeats_; }

private:
    bool open();

    Address address_;
    int connections_ = -1, heartbeats_ = -1;
};

struct Peer {
    std::string address;
    std::uint16_t port = 0;
};

// This rank and all ranks of the job. `peers` has an entry for each rank, including this one.
struct Membership {
    int rank = 0;
    int incarnation = 0;
    session::Token token;
    std::vector<Peer> peers;

    int size() const { return static_cast<int>(peers.size()); }
};

std::string listening_line(int rank, const Address& address);
// Reads the launcher's line. Throws Error for anything else.
Membership read_membership(const std::string& line, int rank, int ranks);
// Reads one line from a descriptor. Throws Error at its end, or after the limit.
std::string read_line_within(int descriptor, Nanoseconds limit);

}  // namespace assay::direct
