// The receiving threads: they drain the sockets, read every header, and count every message.
//
// A socket belongs to one thread and a stream to one socket, so threads share no state. The kernel
// may deliver several messages of a stream as one block (UDP_GRO). One system call for 64 kB
// instead of one per message makes reception cheap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "node/udp/sequence_tracker.hpp"
#include "node/udp/socket.hpp"
#include "node/udp/wire.hpp"

namespace assay::node {

// The first corrupted payload: the expected and observed 8 bytes from `offset`.
struct Corruption {
    std::uint64_t message = 0, offset = 0, expected = 0, observed = 0;
};

// Messages of one stream, as SequenceTracker counts them.
struct StreamArrivals {
    std::uint64_t unique = 0, duplicates = 0, reordered = 0, late = 0;
    std::uint64_t next = 0;  // the highest sequence number plus 1
    double jitter = 0;       // seconds
};

// The counts of all threads.
struct Arrivals {
    std::vector<StreamArrivals> streams{};
    std::uint64_t unique = 0, foreign = 0, corrupted = 0;  // foreign: not of this run
    std::uint64_t first_batch = 0;  // messages of the first batch, at whose arrival timing starts
    // When the threads started, and the first and last arrival (0 if nothing arrived).
    Nanoseconds start = 0, first = 0, last = 0;
    Nanoseconds gap = 0;                     // longest time in which a thread received nothing
    std::vector<std::uint64_t> intervals{};  // messages in each bandwidth_interval since `start`
    std::optional<Corruption> corruption{};
    std::uint64_t largest_block = 1;  // messages that the kernel delivered as one
};

// The interarrival jitter of RFC 3550: the smoothed difference between arrival spacing and sending
// spacing. Both spacings are differences of one clock, so the clocks need not be synchronised.
class Jitter {
public:
    void add(Nanoseconds arrived, Nanoseconds sent) {
        if (arrived_ != 0) {
            const auto change = static_cast<double>((arrived - arrived_) - (sent - sent_));
            smoothed_ += ((change < 0 ? -change : change) - smoothed_) / 16;
        }
        arrived_ = arrived;
        sent_ = sent;
    }
    double seconds() const { return smoothed_ * 1e-9; }

private:
    Nanoseconds arrived_ = 0, sent_ = 0;
    double smoothed_ = 0;  // ns
};

// The length of the intervals of Arrivals::intervals.
inline constexpr Nanoseconds bandwidth_interval = 100'000'000;

class ReceiveThreads {
public:
    // `numa`: the node to which the threads are bound; -1: not bound.
    ReceiveThreads(std::vector<UdpSocket>& sockets, const Hello&, bool verify, int threads,
                   int numa);
    ~ReceiveThreads();

    // While the threads run: the messages received so far, and the time of the last arrival.
    std::uint64_t received() const;
    Nanoseconds last() const;

    void stop();
    Arrivals arrivals();  // after stop()

private:
    struct Worker;
    void receive_loop(Worker&);
    bool drain(Worker&, std::size_t socket);
    void process_block(Worker&, const std::byte* data, std::size_t bytes, std::size_t message_bytes,
                       std::size_t socket, Nanoseconds arrived);

    std::vector<UdpSocket>& sockets_;
    const Hello hello_;
    const std::vector<std::byte> payload_;
    const bool verify_;
    const int numa_;
    const Nanoseconds start_;
    std::vector<SequenceTracker<>> trackers_;
    std::vector<Jitter> jitters_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stopping_ = false;
};

// The default number of threads: the processors that this process may use, but at most 4, and at
// most the number of sockets.
int default_threads(std::size_t sockets);
bool is_confined();  // whether this process may not use all processors

}  // namespace assay::node
