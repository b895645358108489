// Runs one burst: every flow of a round transfers `window` messages, each with its own slot in the
// buffers of source and destination.
//
//     stamp the payloads, post receives | barrier | transfer, timed | barrier | verify
//
// Stamping and verifying are outside the timed part, and no target verifies while another rank is
// timed. Each rank times its own part with its own clock:
//
//   stream   (send) Receives are posted beforehand. The RECEIVER times it, from the end of the
//            barrier to its last completion. There are no acknowledgements, whose queueing would
//            make a slow receiver look like a slow sender. The arrival rate does not show the
//            time of one message, so there is no latency.
//   request  (send) The receiver acknowledges each message with its number after it has arrived.
//            The sender times it, from posting to the acknowledgement.
//   put      MPI put. The source times it in batches of `inflight`, from posting to the end of the
//            flush, which is completion at the target; MPI does not report that for single puts.
//   get      MPI get. The destination times it, from posting to the arrival of the data.
//
// The clock is read once per iteration of the poll loop, for all operations that complete or are
// posted in it. A latency therefore includes the engine's own handling and is never too small.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/statistics.hpp"
#include "network/schedule.hpp"
#include "network/session.hpp"

namespace assay::network {

enum class Op { stream, request, put, get };

const char* name(Op op);  // as in --op: "send", "put", "get"
constexpr bool one_sided(Op op) { return op == Op::put || op == Op::get; }
constexpr bool timed_by_receiver(Op op) { return op == Op::stream || op == Op::get; }

// The messages of each flow in one transfer.
struct Burst {
    Op op;
    std::size_t size;             // bytes per message
    int window;                   // messages per flow
    int inflight;                 // messages in flight at one initiator, over all its flows
    std::uint64_t first_message;  // number of each flow's first message
    bool verify = true;
};

// A message that did not arrive as sent: the offset of its first wrong byte, and the 8-byte words
// around it.
struct Corruption {
    int source;
    std::uint64_t message, offset, expected, observed;
};

struct FlowTime {
    int peer;
    Nanoseconds active;  // time with an operation of the flow in flight
};

// The result of a burst at one rank.
struct Outcome {
    Nanoseconds elapsed = 0;       // of this rank's timed part; 0 if it timed nothing
    double longest = 0;            // seconds: of the rank that ended last; equal on every rank
    std::vector<FlowTime> flows;   // timed by this rank
    std::uint64_t operations = 0;  // timed by this rank
    std::uint64_t bytes = 0;       // arrived here and verified
    std::uint64_t corrupted = 0;   // messages that arrived here with wrong bytes
    std::vector<Corruption> corruptions;  // details of the first few
    std::vector<int> corrupted_sources;   // source rank of each corrupted message
    bool interrupted = false;             // some rank received a signal; equal on every rank
};

// Bytes from one message's slot to the next: whole cache lines.
constexpr std::size_t stride(std::size_t size) { return (size + 63) / 64 * 64; }

// Receives posted ahead of a stream: enough that no message is unexpected, few enough that testing
// them all is cheap.
constexpr int stream_depth(int inflight) { return std::max(64, 2 * inflight); }

// The most messages of a flow in a burst: message indices are int, and their state takes memory.
//
// A simulated burst needs no length against a clock's noise, but each message takes real time. At
// most stream_depth() messages are in flight. So by Little's law the latency of the first is less
// than 1 % of the time of 128 times as many.
constexpr int max_window(bool simulated, int inflight) {
    return simulated ? 128 * std::min(stream_depth(inflight), 1 << 13) : 1 << 20;
}

// The messages of a simulated burst whose first needs `latency` seconds and each `message_seconds`:
// so many that the latency is less than 0.4 % of the burst. Simulated bytes are real work.
constexpr int simulated_window(double latency, double message_seconds, int inflight) {
    return std::clamp(static_cast<int>(std::min(256 * latency / message_seconds, 1e9)), inflight,
                      std::max(inflight, max_window(true, inflight)));
}

class Exchange {
public:
    // `bytes`: size of the buffer for outgoing messages, and of the buffer for incoming messages;
    // at least flows x window x stride. put and get need `one_sided`, which makes the call
    // collective.
    Exchange(Session& session, std::size_t bytes, bool one_sided);
    ~Exchange();
    Exchange(const Exchange&) = delete;

    // Collective. Adds the latencies of the operations timed by this rank to `latency`.
    Outcome run(const Burst& burst, const Round& round, Histogram& latency);

private:
    struct FlowState {
        int done = 0, inflight = 0, receives_posted = 0;
        Nanoseconds active_since = 0, active = 0;
    };
    enum class Kind : std::uint8_t { send, receive, ack_send, ack_receive, get };
    struct Operation {
        Kind kind;
        int flow, slot;
    };

    Nanoseconds timed_start();
    void prepare();
    void stream();
    void request();
    void put();
    void get();
    void verify();

    template <class Done, class Handle>
    void poll_until(Done finished, Handle handle);
    void track(Ticket ticket, Operation operation);
    void post_send(int message);
    void post_receive(int flow, int slot);
    void post_ack_receive(int flow, int number);
    void begin_operation(FlowState& state);
    void end_operation(FlowState& state);
    // The messages of one direction are contiguous in memory, flow by flow.
    std::size_t message_index(int flow, int slot) const {
        return static_cast<std::size_t>(flow) * static_cast<std::size_t>(burst_->window) +
               static_cast<std::size_t>(slot);
    }
    std::size_t message_offset(int flow, int slot) const {
        return message_index(flow, slot) * stride(burst_->size);
    }
    int message_count(const std::vector<Flow>& flows) const {
        return static_cast<int>(flows.size()) * burst_->window;
    }
    std::vector<int> pending_peers() const;

    Session& session_;
    Transport& transport_;
    const bool one_sided_;
    std::unique_ptr<std::byte[]> private_memory_, window_memory_;
    std::byte* window_;  // reached by the peers' puts and gets

    std::array<Nanoseconds, 31> barrier_times_{};  // of the last barriers before a burst
    std::size_t barriers_timed_ = 0;

    // State of the running burst.
    const Burst* burst_ = nullptr;
    const Round* round_ = nullptr;
    Histogram* latency_ = nullptr;
    Outcome outcome_;
    std::byte *outgoing_ = nullptr, *incoming_ = nullptr;  // message buffers
    Nanoseconds clock_ = 0, begin_ = 0;
    std::vector<FlowState> outgoing_states_, incoming_states_;
    std::vector<Operation> operations_;  // by ticket
    std::vector<Ticket> tickets_;
    std::vector<Operation> completed_;
    // By message index: the time of posting, and the acknowledgements sent and received.
    std::vector<Nanoseconds> post_times_;
    std::vector<std::uint64_t> acks_sent_;
    std::vector<std::uint64_t> acks_received_;
};

}  // namespace assay::network
