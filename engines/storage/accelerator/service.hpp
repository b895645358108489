// A node's answers to other nodes: bytes of its store and its shared pointers, over TCP, by one
// thread of its leader.
//
//   greeting   key (16 bytes); answered by the same key, so that nobody talks to the wrong machine
//   request    what, rank, place, amount (Request)
//   bytes      their number, the bytes, and 1 if they were still there when the last was sent; or
//              0: they have given way
//   some       as bytes, but as many as there are in one piece
//   news       as bytes: what the node's ranks have published since this caller last asked (News,
//              then for each rank of which there is something Entry and its records)
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

#include "storage/store/progress.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

using Key = std::array<std::uint64_t, 2>;

struct Request {
    enum What : std::uint32_t { greeting, bytes, some, news, add, set };
    std::uint32_t what;
    std::uint32_t rank;    // of the node; for a pointer: its slot
    std::uint64_t place;   // in the rank's data ring; for news: the caller's clock
    std::uint64_t amount;  // bytes; for a pointer: what is added or set; for news: 1 if someone
                           // waits for the drain
};

struct News {
    Progress progress;
    std::uint64_t more;  // 1: ask again at once
};
struct Entry {
    std::uint32_t rank, records;
    std::uint64_t first;  // position of the first of them
};
constexpr std::uint64_t told_at_once = 8192;  // records of a rank

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
        std::vector<char> own;              // what `data` points to, if not into the store
    };
    struct Caller {
        bool greeted = false;
        std::vector<char> in;
        std::deque<Answer> out;
        std::vector<std::uint64_t> told;  // by rank: its records before are known to the caller
    };

    Service(Store& store, const Key& key) : store_(store), key_(key) {}
    void serve();
    void admit();
    bool hear(int fd, Caller& caller);
    bool answer(int fd, Caller& caller);
    void prepare(Answer& answer, Caller& caller);
    std::vector<char> news(std::vector<std::uint64_t>& told) const;
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
