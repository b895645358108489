// The service of a node: other nodes read its store and its shared pointers over TCP. One thread of
// the node's leader serves them. The protocol:
//
//   greeting          the client sends the key (16 bytes), the service answers with the same key,
//   so
//                     that nobody talks to the wrong machine
//   request           a Request; the answers to it are:
//   read              number of bytes (8 bytes), the bytes, and 1 (8 bytes) if they were still in
//                     the ring when the last one was sent; or the number 0: they were evicted
//   read_available    the same, but as many bytes as are published and contiguous
//   updates           the same, with the records that were published since this client's last
//                     request: an Update, then for each rank with new records a RankRecords and the
//                     records
//   add_pointer, set_pointer   the old value (8 bytes)
//
// It knows nothing of MPI.
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
    enum Operation : std::uint32_t {
        greeting,
        read,
        read_available,
        updates,
        add_pointer,
        set_pointer
    };
    std::uint32_t operation;
    std::uint32_t rank;         // on the node; for a pointer: its slot
    std::uint64_t ring_offset;  // in the rank's data ring; for updates: the client's clock
    std::uint64_t amount;       // bytes; for a pointer: the operand; for updates: 1: drain now
};

struct Update {
    Progress progress;
    std::uint64_t more;  // 1: there are more records, ask again
};
struct RankRecords {
    std::uint32_t rank, records;
    std::uint64_t first;  // number of the first of them
};
constexpr std::uint64_t max_update_records = 8192;  // of a rank

class Service {
public:
    static std::unique_ptr<Service> start(Store& store, const Key& key, std::string& error);
    ~Service();
    std::uint16_t port() const { return port_; }

private:
    struct Answer {
        Request request;
        std::uint64_t head = 0, tail = 0;
        const char* data = nullptr;
        std::uint64_t bytes = 0, sent = 0;  // of head, data and tail together
        bool tail_known = false;            // the tail has been set
        std::vector<char> buffer;           // what `data` points to, if it is not the store
    };
    struct Client {
        bool greeted = false;
        std::vector<char> in;
        std::deque<Answer> out;
        std::vector<std::uint64_t> reported;  // by rank: records that were sent to the client
    };

    Service(Store& store, const Key& key) : store_(store), key_(key) {}
    void serve();
    void accept_client();
    void listen_for_clients(bool on);
    bool receive(int fd, Client& client);
    bool send_answers(int fd, Client& client);
    void prepare(Answer& answer, Client& client);
    std::vector<char> pack_updates(std::vector<std::uint64_t>& reported) const;
    bool in_ring(const Request& request) const;
    std::uint64_t contiguous_bytes(const Request& request) const;
    void watch(int fd, bool writing, bool add);
    static void* run(void* self);

    Store& store_;
    Key key_;
    int listening_ = -1, epoll_ = -1, wake_ = -1;
    std::uint16_t port_ = 0;
    std::map<int, Client> clients_;
    bool accepts_ = true;
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
