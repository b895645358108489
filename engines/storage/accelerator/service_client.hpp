// The client of another node's service: one TCP connection.
//
// Consecutive writes of a rank are consecutive in its ring. So a process that reads in the order of
// writing gets the next bytes by readahead. A ring offset is never reused, so bytes that were read
// ahead stay valid. A Record is the store's description of one write: file, range, sequence and the
// offset of its data in the ring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "storage/accelerator/service.hpp"

namespace assay::storage {

// A read of bytes from the data ring of a rank on another node.
struct RemoteRead {
    enum State { pending, received, evicted, failed };  // evicted: only the file system has them
    int world_rank;
    std::uint64_t ring_offset, bytes;
    char* buffer;
    std::uint64_t file_offset;
    State state = pending;
};

// A read, with the number of the rank on its node.
struct NodeRead {
    std::uint32_t rank;
    RemoteRead* read;
};

class ServiceClient {
public:
    // `host` is in network byte order. Null: no service of this job answers.
    static std::unique_ptr<ServiceClient> connect_to(std::uint32_t host, std::uint32_t port,
                                                     const session::Token& token);
    ~ServiceClient();
    ServiceClient(const ServiceClient&) = delete;
    ServiceClient& operator=(const ServiceClient&) = delete;

    // After a failure: whether the service had closed the connection, as it does with idle ones,
    // before it executed the request. Then the request can be sent again over another connection.
    bool closed() const { return closed_; }

    // The functions below return false if the connection is broken.
    // Sets the state of each read.
    bool fetch(std::vector<NodeRead>& reads);
    // Sends a request for the records that the node's ranks have published since `positions`, which
    // has the number of known records of each rank. `logical_time`: this node's
    // Lamport clock. The answer is not
    // awaited, so that several nodes can be asked at once.
    bool request_updates(std::uint64_t logical_time, Push push,
                         const std::vector<std::uint64_t>& positions);
    // Receives the answer, calls `handle` for each record and advances `positions`.
    using RecordHandler =
        std::function<void(std::uint32_t rank, std::uint64_t position, const Record& record,
                           const Progress& progress)>;
    bool receive_updates(std::uint64_t logical_time, std::vector<std::uint64_t>& positions,
                         const RecordHandler& handle, Update& update);
    // Adds to a shared pointer, or sets it; `before` is its old value.
    bool update_shared_file_pointer(std::uint32_t slot, std::int64_t amount, bool set,
                                    std::uint64_t& before);

private:
    explicit ServiceClient(int fd) : fd_(fd) {}
    bool fetch_one(std::uint32_t rank, RemoteRead& read);
    bool fetch_pipelined(std::vector<NodeRead>& reads);
    bool request_readahead(std::uint32_t rank, std::uint64_t ring_offset, std::uint64_t bytes);
    bool receive_readahead();
    std::uint64_t copy_readahead(std::uint32_t rank, std::uint64_t ring_offset, std::uint64_t bytes,
                                 char* to) const;
    bool send_request(const void* data, std::size_t bytes);
    bool receive_first_word(std::uint64_t& word);
    bool receive_answer(char* to, std::uint64_t bytes, RemoteRead::State& state);

    int fd_;
    bool closed_ = false;
    std::uint32_t last_rank_ = ~0u;
    std::uint64_t last_end_ = 0;
    struct {
        std::uint32_t rank = 0;
        std::uint64_t ring_offset = 0;
        std::vector<char> bytes;
    } readahead_;
    Request readahead_request_{};
    bool readahead_pending_ = false;
};

}  // namespace assay::storage
