// The service of a node: other nodes read its store and its shared pointers over TCP. One thread of
// the node's leader serves them, and never waits for one of them.
//
// It listens on one address, that of the network between the nodes. A connection begins with the
// proof that the caller belongs to the job (session/handshake.hpp). The number of connections is
// limited: beyond it the one that was idle for longest is closed, and its client connects again
// when it needs it. Then the protocol is:
//
//   request           a Request; the answers to it are:
//   read              number of bytes (8 bytes), the bytes, and 1 (8 bytes) if they were still in
//                     the ring when the last one was sent; or the number 0: they were evicted
//   read_available    the same, but as many bytes as are published and contiguous
//   updates           the request is followed by the number of records (8 bytes) of each rank that
//                     the client has; the answer as for read, with the records after those: an
//                     Update, then for each rank with new records a RankRecords and the records
//   add_pointer, set_pointer   the old value (8 bytes)
//
// The service closes an idle connection for sending first, and discards what arrives afterwards. So
// a client that finds the end of the stream in place of an answer knows that its request was not
// executed.
//
// This file does not use MPI.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "session/gate.hpp"
#include "storage/store/progress.hpp"
#include "storage/store/store.hpp"

namespace assay::storage {

constexpr std::string_view service_purpose = "io-service";

struct Request {
    enum Operation : std::uint32_t { read = 1, read_available, updates, add_pointer, set_pointer };
    std::uint32_t operation;
    std::uint32_t rank;  // on the node; for a pointer: its slot; for updates: how many ranks follow
    std::uint64_t ring_offset;  // in the rank's data ring; for updates: the client's clock
    std::uint64_t amount;       // bytes; for a pointer: the operand; for updates: a Push
};
// What a request for updates asks a node to do with its data: nothing, to write them into their
// files now, or to call fsync, too.
enum class Push : std::uint64_t { none, drain, sync };

// The head of an answer to `updates`.
struct Update {
    Progress progress;
    std::uint64_t has_more;  // 1: there are more records; the client asks again
};
// The head of a rank's records in an answer to `updates`.
struct RankRecords {
    std::uint32_t rank, records;
    std::uint64_t first;  // position of the first of them
};
constexpr std::uint64_t max_update_records = 8192;  // of a rank, in one answer

class Service {
public:
    // `host`: the address to listen on, in network byte order.
    static std::unique_ptr<Service> start(Store& store, const session::Token& token,
                                          std::uint32_t host, std::string& error);
    ~Service();
    std::uint16_t port() const { return port_; }

private:
    struct QueuedRequest {
        Request request;
        std::vector<std::uint64_t> positions;  // of updates
    };
    // On the wire: head (8 bytes), data, and for data the tail (8 bytes).
    struct Answer {
        Request request{};
        std::uint64_t head = 0, tail = 0;
        const char* data = nullptr;
        std::uint64_t bytes = 0, sent = 0;  // sent: of head, data and tail together
        bool tail_is_set = false;
        std::vector<char> buffer{};  // what `data` points to, if it is not the store
    };
    struct Client {
        std::vector<char> received{};
        std::deque<QueuedRequest> queue{};
        std::unique_ptr<Answer> answer{};  // being sent; its request is no longer in the queue
        long long last_used_ms = 0;
        bool is_closing = false;  // closed for sending
        bool idle() const { return received.empty() && queue.empty() && !answer && !is_closing; }
    };

    Service(Store& store, const session::Token& token);
    void serve();
    void handle_events(int fd, std::uint32_t events);
    void accept_callers();
    void listen_for_callers(bool on);
    void admit(int fd);
    void close_longest_idle();
    void close_expired();
    void report_refused();
    bool receive(int fd, Client& client);
    bool parse(Client& client);
    bool send_answers(int fd, Client& client);
    bool send_part(int fd, Answer& answer, std::size_t& sent);
    std::unique_ptr<Answer> prepare(const QueuedRequest& queued_request) const;
    std::vector<char> pack_update(const std::vector<std::uint64_t>& positions) const;
    bool in_ring(const Request& request) const;
    std::uint64_t contiguous_bytes(const Request& request) const;
    void watch(int fd, std::uint32_t events, bool add);
    static void* run(void* self);

    Store& store_;
    session::Token token_;
    std::size_t max_clients_;
    session::Gate gate_;
    int listening_socket_ = -1, epoll_fd_ = -1, wake_fd_ = -1;
    std::uint16_t port_ = 0;
    std::map<int, Client> clients_;
    std::size_t closing_clients_ = 0;  // number of clients with `is_closing`
    long long paused_until_ms_ = 0;    // 0: callers are accepted
    bool reported_ = false;            // the first refused caller was reported
    std::atomic<bool> stop_{false};
    pthread_t thread_{};
    bool running_ = false;
};

}  // namespace assay::storage
