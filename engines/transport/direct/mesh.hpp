// The connections between all ranks of a job. Each begins with the handshake that proves the job's
// token (engines/session); then both sides send their rank and incarnation, signed with the token.
//
// A rank connects to the ranks below its own. A rank that comes back is a new process with an
// incarnation above 0. It connects to all ranks, which accept it in place of the earlier process.
// The connections carry the streams of the TCP transport; for other transports they show at once
// when a peer's process ends. A host that falls silent is detected by heartbeats (liveness.hpp).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "session/gate.hpp"
#include "transport/direct/liveness.hpp"
#include "transport/direct/rendezvous.hpp"

namespace assay::direct {

// The first message on a new connection, which identifies a rank. Both sides send one.
struct Hello {
    std::array<char, 8> magic;
    std::array<char, 24> version, transport;
    std::uint32_t size, rank, to, incarnation;
    std::array<unsigned char, 32> nonce;  // random: part of the key of this pair
    std::array<unsigned char, 96> extra;  // of the transport: an address of its own
    std::uint32_t extra_length, port;     // of its listener, to which heartbeats go
    session::Proof proof;                 // of all above
};
static_assert(sizeof(Hello) == 240);

struct MeshSettings {
    std::string transport;
    std::vector<unsigned char> extra;
    Nanoseconds heartbeat_limit = 150'000'000;
    Nanoseconds start_limit = 60'000'000'000;
    // Called by rank 0 once a second with the ranks that it waits for at the start; with none when
    // all are there, if it was called before.
    std::function<void(std::span<const int>)> on_waiting = [](auto) {};
};

class Mesh {
public:
    class Observer {
    public:
        virtual ~Observer() = default;
        // A peer is connected. `key` is a secret of this connection.
        virtual void on_connected(int peer, int socket, const Hello& hello,
                                  const session::Proof& key) = 0;
        // Something happened on a peer's socket: EPOLLIN, EPOLLOUT, EPOLLRDHUP.
        virtual void on_event(int peer, std::uint32_t events) = 0;
        // The peer's process ended, fell silent, or was replaced by a new one.
        virtual void on_lost(int peer, const std::string& reason, bool silent) = 0;
    };

    Mesh(Listener listener, Membership self, MeshSettings settings, Observer& observer);
    ~Mesh();
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    // Blocks until all ranks are connected and have been heard. Throws Error that names the missing
    // ranks. A rank that comes back only waits for the ranks that can be reached.
    void connect_all();
    // Waits until no rank is missing; `wait` lets some time pass. Rank 0 reports the missing ones.
    // Throws Error that names them when the start has taken too long.
    void await_ranks(const std::function<std::vector<int>()>& missing,
                     const std::function<void()>& wait);
    // From now on a silent peer is lost. Before that a host that is slow to start is waited for.
    void judge_silence();
    // Accepts connections and reports events to the observer; waits for `milliseconds` at most.
    void poll(int milliseconds = 0);
    // Readable when poll() has something to do.
    int descriptor() const { return epoll_; }
    // Closes the connection to a peer.
    void drop(int peer);

    // The highest incarnation of a peer that was ever connected; -1: none.
    int incarnation_of(int peer) const { return links_[index(peer)].incarnation; }
    bool is_connected(int peer) const { return links_[index(peer)].socket >= 0; }
    int rank() const { return self_.rank; }
    int size() const { return self_.size(); }
    int incarnation() const { return self_.incarnation; }
    const std::string& address_of(int peer) const { return self_.peers[index(peer)].address; }
    Nanoseconds heartbeat_limit() const { return settings_.heartbeat_limit; }
    // Connections that were refused: strangers, other versions, ranks that were replaced.
    std::uint64_t refused() const { return refused_ + gate_.refused(); }

private:
    struct Link {
        int socket = -1;
        int incarnation = -1;  // the highest that was ever connected
        Nanoseconds since = 0;
    };
    // A connection that has proved the token and whose Hello is not complete.
    struct PendingHello {
        int socket;
        Address address;
        Nanoseconds since;
        std::size_t received = 0;
        Hello hello{};
    };
    static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
    void watch(int fd, std::uint32_t events, std::uint64_t key);
    void accept_callers();
    void authenticate_caller(int fd);
    void read_hello(int fd);
    std::string refusal_reason(const Hello& hello) const;
    void answer_hello(PendingHello& pending);
    Hello make_hello(int peer) const;
    session::Proof connection_key(const Hello& caller, const Hello& listener) const;
    int open_connection(const Address& address, Nanoseconds deadline) const;
    std::string connect_to(int peer, Nanoseconds limit);
    void add_link(int peer, int socket, const Hello& peer_hello, const session::Proof& key,
                  Address address);
    void expire();
    std::vector<int> unconnected_ranks() const;

    Listener listener_;
    const Membership self_;
    const MeshSettings settings_;
    Observer& observer_;
    session::Gate gate_;
    Liveness liveness_;
    int epoll_ = -1;
    std::vector<Link> links_;
    std::vector<PendingHello> pending_hellos_;
    std::uint64_t refused_ = 0;
    Nanoseconds start_deadline_ = 0;
    bool judges_silence_ = false;
    Nanoseconds next_expiry_ = 0;
};

}  // namespace assay::direct
