// The sending threads: paced batches, with one connected socket per stream.
//
// A batch is passed to the kernel in one system call. If possible it is one block that the kernel
// or the adapter splits into messages (UDP_SEGMENT); otherwise it is one sendmmsg of single
// messages.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "node/udp/pace.hpp"
#include "node/udp/socket.hpp"
#include "node/udp/wire.hpp"

namespace assay::node {

// Totals of all streams.
struct Sent {
    std::vector<std::uint64_t> streams{};  // messages of each
    std::uint64_t messages = 0, dropped = 0;
    double rate = 0;          // payload, B/s
    double max_lateness = 0;  // seconds: the longest time from when a batch was due to its sending
    bool gso = false;
    std::optional<Error> error{};  // the error that ended it early
};

// Where and how to send. Streams are distributed over `sockets` ports after the control port.
struct Route {
    Address receiver;  // its control port
    std::uint32_t sockets = 1;
    bool gso = true, fragments = false;
    int threads = 1;
};

class Transmitter {
public:
    // Starts the threads, which send until stop() or the planned end. Throws Error if the receiver
    // cannot be sent to.
    Transmitter(const Hello&, const Route&);
    ~Transmitter();

    bool is_done() const { return running_.load() == 0; }
    std::uint64_t messages() const;  // so far
    void stop();
    Sent sent();  // after stop()

private:
    struct Stream;
    struct Worker;
    void send_loop(Worker&);
    Stream* next_stream(Worker&) const;
    std::uint64_t send_batch(Worker&, Stream&, std::uint64_t messages);
    std::uint64_t send_remaining(Worker&, Stream&, std::uint64_t done, std::uint64_t messages);
    std::uint64_t handle_error(Worker&, Stream&, int error, std::uint64_t block);
    void fail(const Error&);
    bool is_over() const;

    const Hello hello_;
    const Route route_;
    const std::uint64_t batch_;
    const Nanoseconds start_, limit_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::atomic<bool> stopping_ = false;
    std::atomic<int> running_ = 0;
    std::mutex mutex_;
    std::optional<Error> error_;
};

}  // namespace assay::node
