// Ranks on other nodes: what they have written where, and the bytes themselves, both asked for when
// they are needed.
//
// A node's leader answers from the mapped store, in a thread of its own: no rank has to enter MPI
// for another to read what it wrote. Where a window shows at the start that it makes progress by
// itself (RDMA), reads go through that.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/accelerator/caller.hpp"
#include "storage/accelerator/service.hpp"
#include "storage/accelerator/window.hpp"

namespace assay::storage {

class Job;

class Remote {
public:
    // Collective over the job. `wrong`: why it cannot be had.
    static std::unique_ptr<Remote> start(Job& job, std::string& wrong);
    ~Remote();

    // Fetches them; each has a fate then.
    void fetch(std::vector<Wanted>& wanted);
    // What the ranks of these nodes have published since they were last asked, and how far each is
    // (by node); false: one of them cannot be reached. In a hurry: they are to drain at once.
    using Tell = std::function<void(int node, std::uint32_t rank, std::uint64_t position,
                                    const Record& record)>;
    bool news(const std::set<int>& nodes, bool hurry, const Tell& tell,
              std::map<int, Progress>& progress);
    // Adds to a shared pointer of another node's store, or sets it: its value before. False: the
    // node cannot be reached.
    bool pointer(int world_rank, std::uint32_t slot, std::int64_t amount, bool set,
                 std::uint64_t& before);

private:
    static constexpr int most_addresses = 6;
    struct Address {
        std::uint32_t hosts[most_addresses];
        std::uint32_t count, port;
    };
    explicit Remote(Job& job) : job_(job) {}
    Address own_address() const;
    Caller* caller(int node);

    Job& job_;
    Key key_{};
    std::unique_ptr<Service> service_;  // the leader's
    std::unique_ptr<Window> window_;
    std::vector<Address> addresses_;                  // by node
    std::map<int, std::unique_ptr<Caller>> callers_;  // by node
    std::mutex talking_;
};

}  // namespace assay::storage
