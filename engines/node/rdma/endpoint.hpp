// One end of the queue pairs of an RDMA measurement: what the timed loop and the protocol need of a
// device.
//
// Behind it is libibverbs (rdma_verbs.cpp) or, in tests, memory: what the two sides do is tested
// without a device, the device alone is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/record.hpp"
#include "core/topology.hpp"

namespace assay::rdma {

enum class Op { write, read, send };
const char* name(Op);
// Throws Error for what is none of them.
Op parse_op(const std::string&);

struct Completion {
    int qp = 0;
    bool received = false;  // an arrival; else one of this side's own messages
    int status = 0;         // 0: right; else the library's number
};

class Endpoint {
public:
    virtual ~Endpoint() = default;

    // What the other side has to know to connect to it.
    virtual Json address() const = 0;
    // Throws Error when the two cannot be connected.
    virtual void connect(const Json& other) = 0;

    virtual std::byte* memory() = 0;
    // From `at` of this side's memory to `there` of the other's (a read: the other way). Only a
    // message that is `signalled` completes.
    virtual void post(int qp, Op op, std::size_t at, std::size_t there, std::size_t size,
                      bool signalled) = 0;
    virtual void post_receive(int qp, std::size_t at, std::size_t size) = 0;
    // Fills what there is; how many.
    virtual int poll(std::span<Completion> completions) = 0;
    virtual std::string status_text(int status) const = 0;
    virtual int mtu() const = 0;  // bytes, once connected
};

// What an endpoint is made for.
struct Needs {
    std::size_t memory = 0;
    int numa = NodeMemory::any;  // where that memory lies
    int qps = 1;
    int depth = 128;     // messages posted to a queue pair at most
    int receives = 1;    // receives posted to a queue pair at most
    int gid_index = -1;  // -1: chosen
    int mtu = 0;         // 0: the smaller one of both ports'
    int service_level = 0;
    int traffic_class = 0;
};

struct PortName;

// Through libibverbs. Throws Error with what the device refuses.
std::unique_ptr<Endpoint> open_endpoint(const PortName&, const Needs&);
// Why this build, or this host, has no RDMA; none when it has.
std::optional<std::string> no_verbs();

}  // namespace assay::rdma
