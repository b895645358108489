// A rank's access to other nodes: their records, their data and their shared file pointers.
//
// A thread of each node's leader serves them from the mapped store, so no rank has to enter MPI for
// another one to read its data. A rank connects to a node when it needs it first, and keeps a
// limited number of connections.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/accelerator/service.hpp"
#include "storage/accelerator/service_client.hpp"

namespace assay::storage {

class Job;

class Remote {
public:
    // Starts the service of this node and exchanges the addresses. Collective over the job. Sets
    // `error` if it fails.
    static std::unique_ptr<Remote> start(Job& job, std::string& error);

    // Performs the reads and sets the state of each.
    void fetch(std::vector<RemoteRead>& reads);
    // Calls `handle` for each record that these nodes have published since the last call, and sets
    // their progress. Returns false if a node cannot be reached.
    using RecordHandler = std::function<void(int node, std::uint32_t rank, std::uint64_t position,
                                             const Record& record, const Progress& progress)>;
    bool fetch_updates(const std::set<int>& nodes, Push push, const RecordHandler& handle,
                       std::map<int, Progress>& progress);
    // The next fetch_updates() gets all records that are in the node's rings.
    void forget_updates(int node);
    // Adds to a shared pointer in another node's store, or sets it; `before` is its old value.
    // False: the node cannot be reached.
    bool update_shared_file_pointer(int world_rank, std::uint32_t slot, std::int64_t amount,
                                    bool set, std::uint64_t& before);

private:
    // A node's service, and the number of known records of each of its ranks.
    struct Node {
        std::uint32_t host = 0, port = 0;
        std::vector<std::uint64_t> positions{};
    };
    struct Connection {
        std::unique_ptr<ServiceClient> client;
        std::uint64_t last_use;
    };
    explicit Remote(Job& job) : job_(job) {}
    void share_token(std::string& error);
    void share_addresses(std::string& error);
    std::string check_connection_to_next_node();
    ServiceClient* client(int node);
    // Calls `action` with the node's client, and once more with a new one if the service had closed
    // the connection.
    bool with_client(int node, const std::function<bool(ServiceClient&)>& action);
    bool fetch_batch(const std::vector<int>& nodes, Push push, const RecordHandler& handle,
                     std::map<int, Progress>& progress);

    Job& job_;
    session::Token token_;
    std::unique_ptr<Service> service_;  // of the node's leader
    std::vector<Node> nodes_;
    std::map<int, Connection> connections_;  // by node
    std::uint64_t last_use_ = 0;
    std::mutex lock_;
};

}  // namespace assay::storage
