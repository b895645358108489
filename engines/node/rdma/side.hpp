// One side of an RDMA measurement: stamps, posts, times and verifies messages. Both sides run the
// same code.
//
// The client (the side with --peer) posts; in bidirectional mode the server does too. The other
// side receives the messages of a send; for a write or read it only waits for the client's control
// messages.
//
// Contents are verified outside the timed part. First, messages with separate slots are sent and
// all are verified. Then the timed messages of a queue pair use one common slot, as in perftest,
// and the last one is verified.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "node/rdma/control.hpp"
#include "node/rdma/endpoint.hpp"
#include "node/rdma/rates.hpp"

namespace assay::rdma {

// Receives posted ahead on a queue pair, as in perftest.
inline constexpr int receive_depth = 512;

struct Workload {
    std::vector<Op> ops{Op::write};
    std::vector<std::size_t> sizes{65536};
    std::uint64_t iterations = 5000;  // messages of a queue pair in a timed part
    int depth = 128;
    int qps = 1;
    int moderation = 0;  // messages per signalled completion; 0: chosen by the size
    int repeats = 3;
    bool bidirectional = false;
    bool sends() const;  // whether `ops` contains send
};

// Throws PeerError for an invalid workload.
Workload read_workload(const Json&);
Json to_json(const Workload&);

// The memory layout for one message size: messages are sent from the first half of the memory and
// received in the second half. It is equal on both sides.
struct Layout {
    Layout(const Workload&, std::size_t size);
    static std::size_t memory(const Workload&);  // bytes that suffice for all its sizes

    std::size_t outgoing(int qp, std::uint64_t message) const;
    std::size_t incoming(int qp, std::uint64_t message) const {
        return half + outgoing(qp, message);
    }

    std::size_t stride, half;
    std::uint64_t slots;  // per queue pair
};

// Messages per signalled completion. As in perftest 100, and 1 above 8 KiB; never more than the
// depth of the queue.
int moderation(const Workload&, std::size_t size);

// A message that did not arrive as sent.
struct Corruption {
    std::uint64_t message = 0, offset = 0, expected = 0, observed = 0;
};

// The verification of the messages that arrived at one side.
struct Verification {
    std::uint64_t wrong = 0;
    std::optional<Corruption> first;
};

// Results of one size and operation: a value for each repetition, the sum of both directions.
struct Result {
    std::vector<double> rates, peaks;  // messages per second
    Verification local, remote;        // of messages that arrived at this side and at the other
};

class Side {
public:
    // Called with the progress, 0 to 1.
    using Report = std::function<void(double done, const std::string& label)>;

    Side(Endpoint&, Connection&, const Workload&, bool client, double limit, Report);

    // Throws Error for a failed message, or if the other side ends early.
    Result measure(Op, std::size_t size);

private:
    // A number of messages that are posted, timed and verified together.
    struct TimedPart {
        Op op;
        std::size_t size;
        Layout layout;
        std::uint64_t messages;  // of each queue pair
        bool spread;             // whether messages use all slots in turn; else all use the first
        std::uint64_t first;     // number of the first message, unique in the run
        std::size_t outgoing_offset(int qp, std::uint64_t m) const {
            return layout.outgoing(qp, spread ? m : 0);
        }
        std::size_t incoming_offset(int qp, std::uint64_t m) const {
            return layout.incoming(qp, spread ? m : 0);
        }
    };
    // Messages of one queue pair.
    struct Counts {
        std::uint64_t sent = 0, done = 0, receives_posted = 0, arrived = 0;
    };

    bool receives(Op op) const { return op == Op::send && (!client_ || workload_.bidirectional); }
    bool posts() const { return client_ || workload_.bidirectional; }
    // Whether messages arrive in this side's memory.
    bool is_target(Op op) const { return workload_.bidirectional || (op == Op::read) == client_; }
    std::uint64_t key(bool from_client, const TimedPart&, int qp, std::uint64_t message) const;

    void prepare(const TimedPart&);
    Timeline run(const TimedPart&);
    void post_messages(const TimedPart&, Timeline&, int moderation);
    bool poll_completions(const TimedPart&, Timeline&, int moderation);
    void wait(const TimedPart&, Nanoseconds idle_since);
    void send_alive(const TimedPart&, Nanoseconds time);
    void verify(const TimedPart&, Verification&);
    [[noreturn]] void throw_failed(int status);

    Endpoint& endpoint_;
    Connection& connection_;
    Workload workload_;
    bool client_;
    double limit_;
    Report report_;
    std::vector<Counts> counts_;
    std::uint64_t completed_ = 0, arrived_ = 0;
    Nanoseconds last_alive_ = 0;
    std::uint64_t next_message_ = 0;
    std::string label_;  // "write of 64 KiB"
    int parts_done_ = 0;
};

}  // namespace assay::rdma
