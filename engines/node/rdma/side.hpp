// What one side of an RDMA measurement does, the same on both: messages are stamped, posted, timed,
// verified.
//
// The client (the side that was given a host) posts; in both directions at once, the server does
// too. Of a send the other side takes the messages in; of a write or read it does nothing, and
// waits for the client's word.
//
// Contents are verified outside the timed part: first messages into places of their own, each
// checked; then the timed ones, which all go to one place (a queue pair), as perftest's do, and the
// last of which is checked.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "node/rdma/control.hpp"
#include "node/rdma/endpoint.hpp"
#include "node/rdma/rates.hpp"

namespace assay::rdma {

// Receives that are posted ahead to a queue pair; perftest's.
inline constexpr int receive_depth = 512;

struct Workload {
    std::vector<Op> ops{Op::write};
    std::vector<std::size_t> sizes{65536};
    std::uint64_t iterations = 5000;  // messages of a queue pair in a timed part
    int depth = 128;
    int qps = 1;
    int moderation = 0;  // every so many messages one completes; 0: chosen by the size
    int repeats = 3;
    bool bidirectional = false;
    bool sends() const;
};

// Throws PeerError for what is no workload.
Workload read_workload(const Json&);
Json to_json(const Workload&);

// Of one size: where the messages of each queue pair are, in memory whose first half is sent from
// and whose second half is written to. Both sides compute the same.
struct Layout {
    Layout(const Workload&, std::size_t size);
    static std::size_t memory(const Workload&);  // enough for each of its sizes

    std::size_t outgoing(int qp, std::uint64_t message) const;
    std::size_t incoming(int qp, std::uint64_t message) const {
        return half + outgoing(qp, message);
    }

    std::size_t stride, half;
    std::uint64_t slots;  // places of a queue pair
};

// Every so many messages one completes. perftest's: 100, and 1 above 8 KiB; never more than the
// queue holds.
int moderation(const Workload&, std::size_t size);

// A message that is not what was sent.
struct Wrong {
    std::uint64_t message = 0, offset = 0, expected = 0, observed = 0;
};

// What was found of the messages that arrived at one side.
struct Checked {
    std::uint64_t wrong = 0;
    std::optional<Wrong> first;
};

// One size and operation; a value for each repetition, of both directions together.
struct Result {
    std::vector<double> rates, peaks;  // messages a second
    Checked here, there;
};

class Side {
public:
    using Report = std::function<void(double done, const std::string& label)>;

    Side(Endpoint&, Connection&, const Workload&, bool client, double limit, Report);

    // Throws Error for a failed message, or when the other side ends early.
    Result measure(Op, std::size_t size);

private:
    struct Part {
        Op op;
        std::size_t size;
        Layout layout;
        std::uint64_t messages;  // of each queue pair
        bool spread;             // over the places; else all in the first
        std::uint64_t first;     // number of the first message, unique within the run
        std::size_t out(int qp, std::uint64_t m) const {
            return layout.outgoing(qp, spread ? m : 0);
        }
        std::size_t in(int qp, std::uint64_t m) const {
            return layout.incoming(qp, spread ? m : 0);
        }
    };
    struct Counts {
        std::uint64_t sent = 0, done = 0, expecting = 0, arrived = 0;
    };

    bool takes_in(Op op) const { return op == Op::send && (!client_ || workload_.bidirectional); }
    bool posts() const { return client_ || workload_.bidirectional; }
    // Whether messages change this side's memory, or the other's.
    bool filled(Op op) const { return workload_.bidirectional || (op == Op::read) == client_; }
    std::uint64_t key(bool from_client, const Part&, int qp, std::uint64_t message) const;

    void prepare(const Part&);
    Timeline run(const Part&);
    void fill(const Part&, Timeline&, int moderation);
    bool reap(const Part&, Timeline&, int moderation);
    void wait(const Part&, Nanoseconds idle_since);
    void beat(const Part&, Nanoseconds time);
    void verify(const Part&, Checked&);
    [[noreturn]] void failed(int status);

    Endpoint& endpoint_;
    Connection& connection_;
    Workload workload_;
    bool client_;
    double limit_;
    Report report_;
    std::vector<Counts> counts_;
    std::uint64_t completed_ = 0, arrived_ = 0;
    Nanoseconds last_beat_ = 0;
    std::uint64_t next_message_ = 0;
    std::string current_;  // "write of 64 KiB"
    int parts_done_ = 0;
};

}  // namespace assay::rdma
