// Helpers of the tests of transports without MPI: they run ranks as threads of the test or as
// processes.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "session/token.hpp"
#include "transport/direct/peer_transport.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/udp/udp.hpp"

namespace planted {

using namespace assay;
using namespace assay::direct;

// The transports that this build and this host have. The provider of libfabric is named, since its
// default may be that of an adapter.
inline const std::vector<std::string>& transports() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> available{"tcp", "udp"};
        for (const std::string provider : {"tcp", "shm"}) {
            try {
                check_ofi(provider);
                available.push_back("ofi:" + provider);
            } catch (const Error& error) {
                MESSAGE("without ofi:" << provider << ": " << error.what());
            }
        }
        return available;
    }();
    return names;
}

// The transports over which the other ranks continue when a rank dies.
inline std::vector<std::string> transports_that_survive_deaths() {
    std::vector<std::string> names = transports();
    std::erase(names, "ofi:shm");
    return names;
}

inline MeshSettings settings_of(const std::string& transport) {
    MeshSettings settings;
    settings.transport = transport;
    settings.heartbeat_limit = 5'000'000'000;  // the machine may be busy
    settings.start_limit = 20'000'000'000;
    return settings;
}

inline std::unique_ptr<PeerTransport> make_transport(const std::string& transport,
                                                     Listener listener, Membership self,
                                                     MeshSettings settings) {
    const auto start = transport == "tcp"   ? tcp_transport
                       : transport == "udp" ? udp_transport
                                            : ofi_transport;
    return start(std::move(listener), std::move(self), std::move(settings));
}

// A job that is not started yet: the listeners and the addresses of its ranks.
struct Job {
    std::string transport;
    session::Token token = *session::make_token();
    std::vector<std::unique_ptr<Listener>> listeners;
    std::vector<Peer> peers;

    Job(std::string transport_, int ranks) : transport(std::move(transport_)) {
        for (int rank = 0; rank < ranks; ++rank) add_listener();
    }
    void add_listener() {
        listeners.push_back(std::make_unique<Listener>(read_address("127.0.0.1", 0)));
        peers.push_back({"127.0.0.1", listeners.back()->address().port()});
    }
    std::unique_ptr<PeerTransport> rank(int number, int incarnation = 0) {
        return rank(number, settings_of(transport), incarnation);
    }
    std::unique_ptr<PeerTransport> rank(int number, MeshSettings settings, int incarnation = 0) {
        const std::size_t index = static_cast<std::size_t>(number);
        Membership self{number, incarnation, token, peers};
        return make_transport(transport, std::move(*listeners[index]), std::move(self),
                              std::move(settings));
    }
    // A rank in place of a lost one, with a new listener.
    std::unique_ptr<PeerTransport> replace_rank(int number, int incarnation) {
        const std::size_t index = static_cast<std::size_t>(number);
        listeners[index] = std::make_unique<Listener>(read_address("127.0.0.1", 0));
        peers[index].port = listeners[index]->address().port();
        return rank(number, incarnation);
    }
};

// Connects all ranks of a job, runs `body` on each, and lets them leave in order.
inline void run(const std::string& transport, int ranks,
                const std::function<void(PeerTransport&)>& body) {
    Job job(transport, ranks);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    {
        std::vector<std::jthread> threads;
        for (int number = 0; number < ranks; ++number)
            threads.emplace_back([&, number] {
                try {
                    const auto rank = job.rank(number);
                    rank->connect();
                    body(*rank);
                    rank->leave();
                } catch (...) {
                    errors[static_cast<std::size_t>(number)] = std::current_exception();
                }
            });
    }
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

constexpr Nanoseconds limit = 120'000'000'000;

// Polls until the condition holds; fails the test after 120 s. Returns whether it holds.
inline bool poll_until(Transport& transport, std::vector<Ticket>& completed,
                       const std::function<bool()>& holds) {
    const Nanoseconds begin = now();
    while (!holds()) {
        transport.poll(completed);
        std::this_thread::yield();
        if (now() - begin > limit) {
            FAIL_CHECK("the condition does not hold within 120 s");
            return false;
        }
    }
    return true;
}

// Polls until all tickets are complete.
inline void wait_for(Transport& transport, std::vector<Ticket> tickets) {
    std::vector<Ticket> completed;
    poll_until(transport, completed, [&] {
        return std::ranges::all_of(tickets, [&](Ticket ticket) {
            return std::ranges::find(completed, ticket) != completed.end();
        });
    });
}

// Polls until a peer changes; returns that change.
inline PeerChange wait_for_change(Transport& transport) {
    std::vector<PeerChange> changes;
    std::vector<Ticket> completed;
    poll_until(transport, completed, [&] {
        transport.peer_changes(changes);
        return !changes.empty();
    });
    return changes.empty() ? PeerChange{-1, PeerChange::State::lost} : changes.front();
}

// Test data.
inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        data[i] = static_cast<std::byte>((i * 2654435761U + seed * 40503U) >> 7);
    return data;
}

}  // namespace planted
