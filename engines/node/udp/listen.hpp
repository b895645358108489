// The receiving threads: they empty the sockets, read every header, and account for every message.
//
// A socket belongs to one thread and a stream to one socket, so nothing is shared on the way. The
// kernel may hand over several messages of a stream as one block (UDP_GRO): one system call for 64
// kB instead of for each message is what makes reception cheap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "node/udp/account.hpp"
#include "node/udp/socket.hpp"
#include "node/udp/wire.hpp"

namespace assay::node {

// The first payload that was not as sent: 8 bytes from `offset`.
struct Corruption {
    std::uint64_t message = 0, offset = 0, expected = 0, observed = 0;
};

struct StreamArrivals {
    std::uint64_t unique = 0, duplicates = 0, reordered = 0, late = 0, seen = 0;
    double jitter = 0;  // seconds
};

struct Arrivals {
    std::vector<StreamArrivals> streams{};
    std::uint64_t unique = 0, foreign = 0, corrupted = 0;
    std::uint64_t first_batch = 0;               // messages that had arrived when the clock started
    Nanoseconds began = 0, first = 0, last = 0;  // first, last: 0 when nothing arrived
    Nanoseconds gap = 0;                         // longest time in which a thread received nothing
    std::vector<std::uint64_t> intervals{};      // messages in each interval_ns since `began`
    std::optional<Corruption> corruption{};
    std::uint64_t largest_block = 1;  // messages that the kernel handed over as one
};

// Of RFC 3550: by how much the times between arrivals differ from those between departures,
// smoothed. Differences of one clock each, so that it does not matter how the two stand to each
// other.
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

inline constexpr Nanoseconds interval_ns = 100'000'000;

class Listener {
public:
    // `numa`: node whose cores the threads keep to; -1 leaves them where they are.
    Listener(std::vector<UdpSocket>& sockets, const Hello&, bool verify, int threads, int numa);
    ~Listener();

    // As seen while it runs.
    std::uint64_t received() const;
    Nanoseconds last() const;

    void stop();
    Arrivals arrivals();  // after stop()

private:
    struct Worker;
    void work(Worker&);
    bool drain(Worker&, std::size_t socket);
    void take(Worker&, const std::byte* data, std::size_t bytes, std::size_t step,
              std::size_t socket, Nanoseconds arrived);

    std::vector<UdpSocket>& sockets_;
    const Hello hello_;
    const std::vector<std::byte> payload_;
    const bool verify_;
    const int numa_;
    const Nanoseconds began_;
    std::vector<Account<>> accounts_;
    std::vector<Jitter> jitters_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stopping_ = false;
};

// Threads when none are asked for: as many as this process may use, 4 at most, and no more than
// sockets.
int default_threads(std::size_t sockets);
bool is_confined();  // to some of the processors

}  // namespace assay::node
