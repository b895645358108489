// The receiving threads (see receive_threads.hpp).
#include "node/udp/receive_threads.hpp"

#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/topology.hpp"

#ifndef UDP_GRO  // defined by glibc since 2.33
#define UDP_GRO 104
#endif

namespace assay::node {
namespace {

// The kernel's largest block. A few blocks fit into the second-level cache.
constexpr std::size_t block_bytes = 65536;
constexpr std::size_t blocks = 8;
constexpr int poll_ms = 50;  // while nothing arrives, between checks of stopping_
constexpr Nanoseconds last_drain_limit = 1'000'000'000;  // of a socket that never runs empty

// The buffers of one recvmmsg call. A block holds one message, or several that the kernel joined.
struct ReceiveBlocks {
    std::vector<std::byte> data = std::vector<std::byte>(block_bytes * blocks);
    std::array<mmsghdr, blocks> headers{};
    std::array<iovec, blocks> parts{};
    struct alignas(cmsghdr) Control {
        char bytes[CMSG_SPACE(sizeof(int))];
    };
    std::array<Control, blocks> controls{};

    ReceiveBlocks() {
        for (std::size_t i = 0; i < blocks; ++i) {
            parts[i] = {data.data() + i * block_bytes, block_bytes};
            headers[i].msg_hdr.msg_iov = &parts[i];
            headers[i].msg_hdr.msg_iovlen = 1;
            headers[i].msg_hdr.msg_control = controls[i].bytes;
        }
    }
    void rearm() {
        for (std::size_t i = 0; i < blocks; ++i)
            headers[i].msg_hdr.msg_controllen = sizeof(Control);
    }
    // Bytes of each message in block i; 0 if the block is a single message.
    std::size_t message_bytes(std::size_t i) {
        for (cmsghdr* c = CMSG_FIRSTHDR(&headers[i].msg_hdr); c != nullptr;
             c = CMSG_NXTHDR(&headers[i].msg_hdr, c))
            if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
                int size = 0;
                std::memcpy(&size, CMSG_DATA(c), sizeof size);
                return static_cast<std::size_t>(size);
            }
        return 0;
    }
};

int usable_processors() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::uint64_t word_at(const std::byte* data, std::size_t offset, std::size_t size) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + offset, std::min<std::size_t>(8, size - offset));
    return word;
}

}  // namespace

struct alignas(128) ReceiveThreads::Worker {
    std::vector<std::size_t> sockets{};
    std::uint64_t messages = 0, unique = 0, foreign = 0, corrupted = 0, first_batch = 0;
    Nanoseconds first = 0, last = 0, gap = 0;
    std::vector<std::uint64_t> intervals{};
    std::optional<Corruption> corruption{};
    std::uint64_t largest_block = 1;
    std::optional<ReceiveBlocks> blocks{};  // allocated by the thread, so on its NUMA node
    std::atomic<std::uint64_t> live_unique = 0;
    std::atomic<Nanoseconds> live_last = 0;
    std::jthread thread{};
};

int default_threads(std::size_t sockets) {
    return std::clamp(usable_processors(), 1, std::min(4, static_cast<int>(sockets)));
}

bool is_confined() { return usable_processors() < sysconf(_SC_NPROCESSORS_ONLN); }

ReceiveThreads::ReceiveThreads(std::vector<UdpSocket>& sockets, const Hello& hello, bool verify,
                               int threads, int numa)
    : sockets_(sockets),
      hello_(hello),
      payload_(payload_of(hello.run_number, hello.size)),
      verify_(verify),
      numa_(numa),
      start_(now()),
      trackers_(hello.streams),
      jitters_(hello.streams) {
    for (int t = 0; t < threads; ++t) {
        workers_.push_back(std::make_unique<Worker>());
        for (auto s = static_cast<std::size_t>(t); s < sockets.size();
             s += static_cast<std::size_t>(threads))
            workers_.back()->sockets.push_back(s);
        workers_.back()->intervals.reserve(static_cast<std::size_t>(hello.seconds * 10) + 100);
    }
    for (auto& worker : workers_)
        worker->thread = std::jthread([this, w = worker.get()] { receive_loop(*w); });
}

ReceiveThreads::~ReceiveThreads() { stop(); }

void ReceiveThreads::receive_loop(Worker& worker) {
    for (const NumaNode& node : numa_nodes())
        if (node.number == numa_ && !node.cores.empty()) bind_to_node(node);
    worker.blocks.emplace();
    std::vector<pollfd> polled;
    polled.reserve(worker.sockets.size());
    for (const std::size_t s : worker.sockets) polled.push_back({sockets_[s].fd(), POLLIN, 0});
    while (!stopping_.load(std::memory_order_relaxed)) {
        bool any = false;
        for (const std::size_t s : worker.sockets) any |= drain(worker, s);
        if (!any) poll(polled.data(), polled.size(), poll_ms);
    }
    // What the sockets hold has arrived, also where a busy machine has not run this thread lately.
    for (const std::size_t s : worker.sockets)
        for (const Nanoseconds limit = now() + last_drain_limit;
             drain(worker, s) && now() < limit;) {
        }
}

// Receives the datagrams that wait in a socket, at most one set of blocks. Returns false if there
// were none.
bool ReceiveThreads::drain(Worker& worker, std::size_t socket) {
    ReceiveBlocks& b = *worker.blocks;
    b.rearm();
    const int n = recvmmsg(sockets_[socket].fd(), b.headers.data(), blocks, MSG_DONTWAIT, nullptr);
    if (n <= 0) return false;
    const Nanoseconds time = now();
    const std::uint64_t before = worker.unique, messages_before = worker.messages;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const std::size_t bytes = b.headers[i].msg_len, message_bytes = b.message_bytes(i);
        if (message_bytes != 0)
            worker.largest_block =
                std::max(worker.largest_block, (bytes + message_bytes - 1) / message_bytes);
        process_block(worker, static_cast<const std::byte*>(b.parts[i].iov_base), bytes,
                      message_bytes ? message_bytes : bytes, socket, time);
    }
    if (worker.messages == messages_before) return true;  // no message of this run
    const std::uint64_t new_messages = worker.unique - before;
    if (worker.first == 0) {
        worker.first = time;
        worker.first_batch = new_messages;
    } else {
        worker.gap = std::max(worker.gap, time - worker.last);
    }
    worker.last = time;
    const auto interval = static_cast<std::size_t>((time - start_) / bandwidth_interval);
    if (interval >= worker.intervals.size()) worker.intervals.resize(interval + 1);
    worker.intervals[interval] += new_messages;
    worker.live_unique.store(worker.unique, std::memory_order_relaxed);
    worker.live_last.store(time, std::memory_order_relaxed);
    return true;
}

// Processes the messages of one block, each of `message_bytes` bytes.
void ReceiveThreads::process_block(Worker& worker, const std::byte* data, std::size_t bytes,
                                   std::size_t message_bytes, std::size_t socket,
                                   Nanoseconds arrived) {
    if (bytes == 0) ++worker.foreign;
    for (std::size_t offset = 0; offset < bytes; offset += message_bytes) {
        const std::byte* message = data + offset;
        DataHeader header;
        const bool valid = std::min(message_bytes, bytes - offset) == hello_.size &&
                           header.get(message) && header.run_number == hello_.run_number &&
                           header.stream < hello_.streams &&
                           header.stream % sockets_.size() == socket &&
                           header.sequence < hello_.messages_per_stream;
        if (!valid) {
            ++worker.foreign;
            continue;
        }
        SequenceTracker<>& tracker = trackers_[header.stream];
        ++worker.messages;
        if (offset == 0)
            jitters_[header.stream].add(arrived, static_cast<Nanoseconds>(header.sent_at));
        const std::uint64_t before = tracker.unique();
        tracker.add(header.sequence);
        worker.unique += tracker.unique() - before;
        constexpr std::size_t header_bytes = DataHeader::bytes;
        if (!verify_ || std::memcmp(message + header_bytes, payload_.data() + header_bytes,
                                    hello_.size - header_bytes) == 0)
            continue;
        ++worker.corrupted;
        if (worker.corruption) continue;
        const auto wrong_byte = std::mismatch(message + header_bytes, message + hello_.size,
                                              payload_.begin() + header_bytes)
                                    .first -
                                message;
        const auto wrong_offset = static_cast<std::size_t>(wrong_byte);
        worker.corruption = {header.sequence, wrong_offset,
                             word_at(payload_.data(), wrong_offset, hello_.size),
                             word_at(message, wrong_offset, hello_.size)};
    }
}

std::uint64_t ReceiveThreads::received() const {
    std::uint64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->live_unique.load(std::memory_order_relaxed);
    return sum;
}

Nanoseconds ReceiveThreads::last() const {
    Nanoseconds latest = 0;
    for (const auto& worker : workers_)
        latest = std::max(latest, worker->live_last.load(std::memory_order_relaxed));
    return latest;
}

void ReceiveThreads::stop() {
    stopping_ = true;
    for (auto& worker : workers_)
        if (worker->thread.joinable()) worker->thread.join();
}

Arrivals ReceiveThreads::arrivals() {
    Arrivals all;
    all.start = start_;
    for (std::size_t s = 0; s < trackers_.size(); ++s) {
        const SequenceTracker<>& a = trackers_[s];
        all.streams.push_back(
            {a.unique(), a.duplicates(), a.reordered(), a.late(), a.next(), jitters_[s].seconds()});
    }
    for (const auto& w : workers_) {
        all.unique += w->unique;
        all.foreign += w->foreign;
        all.corrupted += w->corrupted;
        all.largest_block = std::max(all.largest_block, w->largest_block);
        if (!all.corruption) all.corruption = w->corruption;
        if (w->first == 0) continue;
        if (all.first == 0 || w->first < all.first) {
            all.first = w->first;
            all.first_batch = w->first_batch;
        }
        all.last = std::max(all.last, w->last);
        all.gap = std::max(all.gap, w->gap);
        all.intervals.resize(std::max(all.intervals.size(), w->intervals.size()));
        for (std::size_t i = 0; i < w->intervals.size(); ++i) all.intervals[i] += w->intervals[i];
    }
    return all;
}

}  // namespace assay::node
