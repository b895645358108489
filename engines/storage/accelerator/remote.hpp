// Access to other nodes: their records, their data and their shared pointers.
//
// A thread of each node's leader serves them from the mapped store, so no rank has to enter MPI for
// another one to read its data. If an MPI window makes progress without its target (RDMA), which is
// tested at the start, data are read through it.
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
#include "storage/accelerator/window.hpp"

namespace assay::storage {

class Job;

class Remote {
public:
    // Collective over the job. `error` is set if it fails.
    static std::unique_ptr<Remote> start(Job& job, std::string& error);
    ~Remote();

    // Performs the reads and sets the state of each.
    void fetch(std::vector<RemoteRead>& reads);
    // Calls `handle` for each record that these nodes have published since the last call, and sets
    // their progress. False: a node cannot be reached. `drain_now`: the nodes start to drain.
    using RecordHandler = std::function<void(int node, std::uint32_t rank, std::uint64_t position,
                                             const Record& record)>;
    bool fetch_updates(const std::set<int>& nodes, bool drain_now, const RecordHandler& handle,
                       std::map<int, Progress>& progress);
    // Adds to a shared pointer in another node's store, or sets it; `before` is its old value.
    // False: the node cannot be reached.
    bool shared_pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set,
                        std::uint64_t& before);

private:
    static constexpr int max_addresses = 6;
    struct Address {
        std::uint32_t hosts[max_addresses];
        std::uint32_t count, port;
    };
    explicit Remote(Job& job) : job_(job) {}
    Address local_address() const;
    ServiceClient* client(int node);

    Job& job_;
    Key key_{};
    std::unique_ptr<Service> service_;  // of the node's leader
    std::unique_ptr<Window> window_;
    std::vector<Address> addresses_;                         // by node
    std::map<int, std::unique_ptr<ServiceClient>> clients_;  // by node
    std::mutex lock_;
};

}  // namespace assay::storage
