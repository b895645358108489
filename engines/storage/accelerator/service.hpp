// A node's answers to other nodes: bytes of its store and its shared pointers, over TCP, by one thread of its leader.
//
//   greeting   key (16 bytes); answered by the same key, so that nobody talks to the wrong machine
//   request    what, rank, place, amount (Request)
//   bytes      their number, the bytes, and 1 if they were still there when the last was sent; or 0: they have given way
//   some       as bytes, but as many as there are in one piece
//   pointer    its value before
//
// Knows nothing of MPI.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/store/store.hpp"

namespace assay::storage {

using Key = std::array<std::uint64_t, 2>;

struct Request {
    enum What : std::uint32_t { greeting, bytes, some, add, set };
    std::uint32_t what;
    std::uint32_t rank;    // of the node; for a pointer: its slot
    std::uint64_t place;   // in the rank's data ring
    std::uint64_t amount;  // bytes; for a pointer: what is added or set
};

class Service {
public:
    static std::unique_ptr<Service> start(Store& store, const Key& key, std::string& wrong);
    ~Service();
    std::uint16_t port() const { return port_; }

private:
    struct Answer {
        Request request;
        std::uint64_t head = 0, tail = 0;
        const char* data = nullptr;
        std::uint64_t bytes = 0, sent = 0;  // of head, data and tail together
        bool closed = false;                // the tail has been decided
    };
    struct Caller {
        bool greeted = false;
        std::vector<char> in;
        std::deque<Answer> out;
    };

    Service(Store& store, const Key& key) : store_(store), key_(key) {}
    void serve();
    void admit();
    bool hear(int fd, Caller& caller);
    bool answer(int fd, Caller& caller);
    void prepare(Answer& answer);
    bool there(const Request& request) const;
    std::uint64_t in_one_piece(const Request& request) const;
    void watch(int fd, bool writing, bool fresh);
    static void* run(void* self);

    Store& store_;
    Key key_;
    int listening_ = -1, epoll_ = -1, wake_ = -1;
    std::uint16_t port_ = 0;
    std::map<int, Caller> callers_;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
