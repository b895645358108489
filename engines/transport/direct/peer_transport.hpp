// Base of the transports without MPI: peers that are lost and come back, tickets, collectives over
// messages, and the end of a job. A derived class moves the bytes (see docs/transports.md).
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/direct/launcher_lines.hpp"
#include "transport/direct/mesh.hpp"
#include "transport/direct/tickets.hpp"
#include "transport/transport.hpp"

namespace assay::direct {

// The longest time that allowed_idle_wait() returns: then the timers are checked.
inline constexpr Nanoseconds max_idle_wait = 10'000'000;

class PeerTransport : public Transport, private Mesh::Observer {
public:
    PeerTransport(Listener listener, Membership self, MeshSettings settings);

    // Connects to all peers; blocks. Throws Error that names the peers that cannot be reached.
    // Blocks until all ranks are connected, and each knows that all are.
    void connect();
    // Leaves the job: waits until every peer leaves too or is lost. A rank that ends without this
    // call is reported as lost by its peers.
    void leave();

    int rank() const final { return mesh_.rank(); }
    int size() const final { return mesh_.size(); }
    std::string library() const override { return name_; }
    int incarnation() const final { return mesh_.incarnation(); }
    bool survives() const final { return true; }
    void set_launcher(std::shared_ptr<LauncherLines> lines) { launcher_ = std::move(lines); }
    bool has_launcher() const final { return launcher_ != nullptr; }
    std::optional<std::string> launcher_line() final {
        return launcher_ ? launcher_->take() : std::nullopt;
    }
    void peer_changes(std::vector<PeerChange>& changes) final;
    void check_peers() const override;

    Ticket send(const void* data, std::size_t bytes, int peer, int tag) final;
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) final;
    void poll(std::vector<Ticket>& completed) final;
    void idle_wait(Nanoseconds idle, Nanoseconds limit) override;
    void poll_failed(std::vector<Ticket>& failed) final { tickets_.report_failed(failed); }

    // Once a rank was lost, collectives throw Error.
    void begin_sum(std::span<double> values) final { begin(values, true); }
    void begin_max(std::span<double> values) final { begin(values, false); }
    bool test_collective() final;
    std::vector<std::string> gather(const std::string& value) final;
    void broadcast(std::string& value) final;

    std::vector<Counter> counters() const override;
    [[noreturn]] void abort(int status) final;

protected:
    // The movement of bytes. The derived class completes each ticket; detach() fails all of a peer.
    virtual void attach(int peer, int socket, const Hello& hello, const session::Proof& key) = 0;
    virtual void detach(int peer) = 0;
    virtual void post_send(Ticket ticket, const void* data, std::size_t bytes, int peer,
                           int tag) = 0;
    virtual void post_receive(Ticket ticket, void* data, std::size_t bytes, int peer, int tag) = 0;
    // Sends and receives as much as is possible without waiting; calls mesh().poll().
    virtual void progress() = 0;
    // A descriptor, beside the mesh's, that is readable when something has arrived; -1: none.
    virtual int descriptor() const { return -1; }
    // The time for which progress() has nothing to do unless something arrives.
    virtual Nanoseconds allowed_idle_wait() { return 0; }
    virtual bool is_idle(int peer) const = 0;  // whether nothing is on its way to the peer
    // Events of epoll on the peer's connection.
    virtual void on_socket_events(int peer, std::uint32_t events) = 0;

    Mesh& mesh() { return mesh_; }
    Tickets& tickets() { return tickets_; }
    bool is_connected(int peer) const { return mesh_.is_connected(peer); }
    // Whether a connected peer has called leave().
    bool has_left(int peer) const;
    // The connection has ended. The peer is lost, unless it has left.
    void end_peer(int peer, const std::string& reason);
    // For loops that wait: moves bytes, and throws Error if a collective cannot end any more.
    void progress_and_check(const char* activity);

private:
    // The running reduction: up the tree to rank 0, then down with the result.
    struct Reduction {
        bool sum;
        std::span<double> values;
        std::vector<std::vector<double>> parts;  // of the children
        std::vector<Ticket> up;
        std::optional<Ticket> down;
    };
    struct InternalSend {  // a message of a collective, until it has been sent
        Ticket ticket;
        std::vector<std::byte> bytes;
    };
    void on_connected(int peer, int socket, const Hello& hello, const session::Proof& key) final;
    void on_event(int peer, std::uint32_t events) final { on_socket_events(peer, events); }
    void on_lost(int peer, const std::string& reason, bool silent) final;
    void start_together();
    void begin(std::span<double> values, bool sum);
    // Throws Error if a collective cannot end.
    void check_all_present(const char* activity) const;
    struct Loss;
    [[noreturn]] void throw_lost(const Loss& loss, const char* activity) const;
    void send_internal(const void* data, std::size_t bytes, int peer, int tag);
    Ticket receive_internal(void* data, std::size_t bytes, int peer, int tag);
    bool release_if_completed(Ticket internal);
    void receive_blocking(void* data, std::size_t bytes, int peer, int tag, const char* activity);
    std::string receive_text(int peer, const char* activity);
    void send_text(const std::string& text, int peer);
    void release_completed_sends();

    const std::string name_;
    Tickets tickets_;
    Mesh mesh_;
    std::shared_ptr<LauncherLines> launcher_;
    std::vector<Ticket> leave_receives_;  // of each peer: the receive of its last message
    std::vector<PeerChange> changes_;
    struct Loss {
        int peer;
        std::string reason;
        bool silent, graceful;
        Nanoseconds time;
    };
    std::vector<Loss> losses_;
    std::optional<Reduction> reduction_;
    std::list<InternalSend> internal_sends_;
};

}  // namespace assay::direct
