// One burst: every flow of a round carries `window` messages, each from and to a place of its own.
//
//     stamp the payloads, post receives | barrier | transfer, timed | barrier | verify
//
// So neither stamping nor verifying falls into the timed part, and no target verifies while another
// is timed. A rank times only its own part, from its own clock:
//
//   stream   (send) receives posted beforehand; timed at the RECEIVER, from the barrier's end to
//            its last completion. No acknowledgements: a slow receiver cannot be mistaken for a
//            slow sender through a queue of answers. How often messages land says nothing of how
//            long one takes: no latency.
//   request  (send) the receiver answers each message with its number, once it has arrived; timed
//            at the sender, from posting to the answer.
//   put      MPI put; timed at the source in batches of `inflight`, from posting to the end of the
//            flush: completion at the target, which MPI does not report for single puts.
//   get      MPI get; timed at the destination, from posting to the data's arrival.
//
// A clock reading is taken once a turn of the poll loop and serves all that completes and is posted
// in it: a latency includes our own handling and is never less than the truth.
#pragma once

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

const char* name(Op op);  // as the user says it: "send", "put", "get"
constexpr bool one_sided(Op op) { return op == Op::put || op == Op::get; }
constexpr bool timed_by_receiver(Op op) { return op == Op::stream || op == Op::get; }

struct Burst {
    Op op;
    std::size_t size;     // bytes a message
    int window;           // messages a flow
    int inflight;         // messages in flight at one initiator, over all its flows
    std::uint64_t first;  // number of the first message of each flow
    bool verify = true;
};

// A message that did not arrive as sent: where its first wrong byte is, and the 8 bytes around it.
struct Wrong {
    int source;
    std::uint64_t message, offset, expected, observed;
};

struct FlowTime {
    int peer;
    Nanoseconds busy;  // while the flow had an operation in flight
};

struct Outcome {
    Nanoseconds elapsed = 0;       // of this rank's timed part; 0 when it timed nothing
    std::vector<FlowTime> flows;   // those that this rank timed
    std::uint64_t operations = 0;  // timed here
    std::uint64_t bytes = 0;       // arrived here, verified
    std::uint64_t corrupted = 0;   // messages that arrived here otherwise
    std::vector<Wrong> wrong;      // the first few of them
    std::vector<int> wrong_from;   // source of each corrupted message
    bool interrupted = false;      // some rank got a signal; the same on every rank
};

// Bytes from one message's place to the next: whole cache lines.
constexpr std::size_t stride(std::size_t size) { return (size + 63) / 64 * 64; }

class Exchange {
public:
    // `bytes` of place for the messages that leave a rank, and as much for those that arrive: at
    // least lanes x window x stride. Collective when `exposed`, which put and get need.
    Exchange(Session& session, std::size_t bytes, bool exposed);
    ~Exchange();
    Exchange(const Exchange&) = delete;

    // Collective. Latencies of the operations timed here are added to `latency`.
    Outcome run(const Burst& burst, const Round& round, Histogram& latency);

private:
    struct LaneState {
        int done = 0, inflight = 0, receives = 0;
        Nanoseconds since = 0, busy = 0;  // since: something is in flight
    };
    enum class Kind : std::uint8_t { sent, landed, answer, answered, got };
    struct Job {
        Kind kind;
        int lane, slot;
    };

    Nanoseconds common_begin();
    void prepare();
    void stream();
    void request();
    void put();
    void get();
    void verify();

    template <class Done, class Handle>
    void until(Done finished, Handle handle);
    void track(Ticket ticket, Job job);
    void post_send(int message);
    void post_receive(int lane, int slot);
    void post_answer_receive(int lane, int number);
    void take_off(LaneState& state);
    void land(LaneState& state);
    // Messages are numbered through at each rank and direction: cells, one behind the other in
    // memory.
    std::size_t cell(int lane, int slot) const {
        return static_cast<std::size_t>(lane) * static_cast<std::size_t>(burst_->window) +
               static_cast<std::size_t>(slot);
    }
    std::size_t place(int lane, int slot) const { return cell(lane, slot) * stride(burst_->size); }
    int total(const std::vector<Lane>& lanes) const {
        return static_cast<int>(lanes.size()) * burst_->window;
    }
    std::vector<int> awaited() const;

    Session& session_;
    Transport& transport_;
    const bool exposed_;
    std::unique_ptr<std::byte[]> own_, unexposed_;
    std::byte* window_;  // what peers reach by put and get

    std::array<Nanoseconds, 31> passages_{};  // through the last barriers before a burst
    std::size_t passed_ = 0;

    // Of the burst that runs.
    const Burst* burst_ = nullptr;
    const Round* round_ = nullptr;
    Histogram* latency_ = nullptr;
    Outcome outcome_;
    std::byte *leaving_ = nullptr, *arriving_ = nullptr;
    Nanoseconds clock_ = 0, begin_ = 0;
    std::vector<LaneState> out_, in_;
    std::vector<Job> jobs_;  // by ticket
    std::vector<Ticket> completed_;
    std::vector<Job> done_;
    std::vector<Nanoseconds> posted_;     // by cell
    std::vector<std::uint64_t> answers_;  // by cell: what this rank answers,
    std::vector<std::uint64_t> replies_;  // and what it is answered
};

}  // namespace assay::network
