// One end of the queue pairs of an RDMA measurement: the interface between the measurement and a
// device.
//
// It is implemented by libibverbs (verbs.cpp) and, in tests, by plain memory. So the two sides of
// the measurement are tested without a device.
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
// Throws Error for an unknown operation.
Op parse_op(const std::string&);

struct Completion {
    int qp = 0;
    bool received = false;  // true: a message arrived; false: one of this side was sent
    int status = 0;         // 0: success; else the library's status (ibv_wc_status)
};

class Endpoint {
public:
    virtual ~Endpoint() = default;

    // The data that the other side needs to connect: queue pair numbers, memory key, ...
    virtual Json address() const = 0;
    // Connects to the other side's address(). Throws Error if the two cannot be connected.
    virtual void connect(const Json& other) = 0;

    virtual std::byte* memory() = 0;
    // Posts a message from `local` in this side's memory to `remote` in the other's; a read goes
    // the other way. Both are offsets. Only a `signalled` message reports its completion.
    virtual void post(int qp, Op op, std::size_t local, std::size_t remote, std::size_t size,
                      bool signalled) = 0;
    virtual void post_receive(int qp, std::size_t local, std::size_t size) = 0;
    // Fills in the available completions. Returns their number.
    virtual int poll(std::span<Completion> completions) = 0;
    virtual std::string status_text(int status) const = 0;
    virtual int mtu() const = 0;  // bytes, once connected
};

// The settings of an endpoint.
struct EndpointOptions {
    std::size_t memory = 0;
    int numa = NodeMemory::any;
    int qps = 1;
    int depth = 128;     // messages posted to a queue pair at a time
    int receives = 1;    // receives posted to a queue pair at a time
    int gid_index = -1;  // -1: automatic
    int mtu = 0;         // 0: the smaller one of both ports
    int service_level = 0;
    int traffic_class = 0;
};

struct PortName;

// Opens an endpoint through libibverbs. Throws Error if the device refuses something.
std::unique_ptr<Endpoint> open_endpoint(const PortName&, const EndpointOptions&);
// The reason why this build or host has no RDMA; none if it has.
std::optional<std::string> no_verbs();

}  // namespace assay::rdma
