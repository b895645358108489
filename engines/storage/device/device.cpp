// Measures a node's storage over a grid of points. A point is a combination of operation, pattern,
// method, number of threads and transfer size. Each point is measured in --repeats passes of
// --budget seconds. In a pass the threads start together, each bound to a core and in its own part
// of the target. A thread ends with its first transfer that completes after the budget; that
// transfer and its time count too. Writes are not synced: `call` and `mmap` measure the page cache,
// or on a dax mapping the processor's caches.
#include "storage/device/device.hpp"

#include <fmt/format.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <barrier>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "storage/device/data.hpp"
#include "storage/device/target.hpp"

namespace assay::storage {
namespace {

struct Point {
    std::string op, pattern, method;
    std::size_t threads, size;
};

// Copies 16-byte aligned data with non-temporal stores. They bypass the caches, so on persistent
// memory they are durable after the fence. Returns false without SSE2.
bool stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
    auto* const target = reinterpret_cast<__m128i*>(to);
    const auto* const source = reinterpret_cast<const __m128i*>(from);
    for (std::size_t k = 0; k < bytes / sizeof(__m128i); ++k)
        _mm_stream_si128(target + k, _mm_load_si128(source + k));
    _mm_sfence();
    return true;
#else
    static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes);
    return false;
#endif
}

constexpr bool has_stream_copy =
#ifdef __SSE2__
    true;
#else
    false;
#endif

// One thread's transfers at a point: its buffer, the offsets that it visits, and its results.
class TransferWorker {
public:
    TransferWorker(const Target& target, const Point& point, std::size_t index)
        : target_(target), point_(point), buffer_(point.size, NodeMemory::any) {
        const std::size_t share = target.bytes() / point.threads / point.size;  // transfers
        begin_ = index * share * point.size;
        transfers_in_part_ = share;
        random_state_ = 0x9E3779B97F4A7C15 * (index + 1);
        std::memset(buffer_.data(), 0x5A, point.size);
    }

    // One transfer. Returns false on an error and sets `problem`.
    bool make_transfer() {
        const std::size_t offset = begin_ + next_number() * point_.size;
        auto* const data = static_cast<std::byte*>(buffer_.data());
        if (point_.op == "write") {
            stamp_device_pages(data, point_.size, offset);
            return is_whole(write(data, offset));
        }
        if (!is_whole(read(data, offset))) return false;
        if (target_.is_filled() && !pages_match(data, point_.size, offset)) ++wrong;
        return true;
    }

    std::uint64_t transfers = 0, wrong = 0;  // completed transfers; reads with wrong data
    Nanoseconds end = 0;                     // of the last transfer
    std::string problem;                     // why a transfer failed; empty: none did
    Histogram latency;

private:
    // The number of the next transfer within the thread's part.
    std::size_t next_number() {
        if (point_.pattern == "sequential") return next_sequential_++ % transfers_in_part_;
        random_state_ ^= random_state_ << 13;  // xorshift64 (Marsaglia 2003)
        random_state_ ^= random_state_ >> 7;
        random_state_ ^= random_state_ << 17;
        return random_state_ % transfers_in_part_;
    }
    // Both return the bytes transferred, or -1 and set errno.
    ssize_t write(const std::byte* data, std::size_t offset) const {
        const auto bytes = static_cast<ssize_t>(point_.size);
        if (point_.method == "stream")
            return stream_copy(target_.mapping() + offset, data, point_.size) ? bytes : 0;
        if (point_.method != "mmap")
            return pwrite(descriptor(), data, point_.size, static_cast<off_t>(offset));
        std::memcpy(target_.mapping() + offset, data, point_.size);
        return bytes;
    }
    ssize_t read(std::byte* data, std::size_t offset) const {
        if (point_.method != "mmap")
            return pread(descriptor(), data, point_.size, static_cast<off_t>(offset));
        std::memcpy(data, target_.mapping() + offset, point_.size);
        return static_cast<ssize_t>(point_.size);
    }
    bool is_whole(ssize_t bytes) {
        if (bytes == static_cast<ssize_t>(point_.size)) return true;
        problem =
            bytes < 0 ? std::strerror(errno) : fmt::format("only {} bytes were transferred", bytes);
        return false;
    }
    int descriptor() const {
        return point_.method == "direct" ? target_.direct_descriptor() : target_.descriptor();
    }

    const Target& target_;
    const Point& point_;
    NodeMemory buffer_;
    std::size_t begin_;              // offset of the thread's part
    std::size_t transfers_in_part_;  // transfers that fit into it
    std::size_t next_sequential_ = 0;
    std::uint64_t random_state_;
};

struct Pass {
    double bandwidth = 0, rate = 0;  // B/s; transfers/s
    std::uint64_t wrong = 0;         // reads with wrong data
};

Pass run_pass(const Target& target, const Point& point, double duration_s, Histogram& latency) {
    std::vector<std::unique_ptr<TransferWorker>> workers;
    workers.reserve(point.threads);
    for (std::size_t t = 0; t < point.threads; ++t)
        workers.push_back(std::make_unique<TransferWorker>(target, point, t));
    Nanoseconds begin = 0;  // of all threads: a busy machine may run one after the other
    std::barrier start(static_cast<std::ptrdiff_t>(point.threads),
                       [&begin]() noexcept { begin = now(); });
    {
        std::vector<std::jthread> pool;
        pool.reserve(point.threads);
        for (std::size_t t = 0; t < point.threads; ++t)
            pool.emplace_back([&, t] {
                TransferWorker& worker = *workers[t];
                bind_to_core(static_cast<int>(t) % core_count());
                start.arrive_and_wait();
                const Nanoseconds end = begin + static_cast<Nanoseconds>(duration_s * 1e9);
                worker.end = now();
                do {
                    const Nanoseconds last = worker.end;
                    if (!worker.make_transfer()) break;
                    worker.end = now();
                    worker.latency.record(worker.end - last);
                    ++worker.transfers;
                } while (worker.end < end && !interrupted());
            });
    }
    Pass pass;
    Nanoseconds end = begin;
    double transfers = 0;
    for (const auto& worker : workers) {
        if (!worker->problem.empty())
            throw Error(fmt::format("{}: cannot {} {} bytes: {}", target.path(), point.op,
                                    point.size, worker->problem),
                        "look for I/O errors in the kernel log (dmesg)");
        end = std::max(end, worker->end);
        transfers += static_cast<double>(worker->transfers);
        pass.wrong += worker->wrong;
        latency.merge(worker->latency.counts());
    }
    pass.rate = end > begin ? transfers / seconds(end - begin) : 0;
    pass.bandwidth = pass.rate * static_cast<double>(point.size);
    return pass;
}

std::vector<std::string> parse_list(const Options& options, const char* name,
                                    const std::set<std::string>& allowed) {
    std::vector<std::string> values;
    std::string text = options.text(name);
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        values.push_back(text.substr(begin, comma - begin));
        if (!allowed.contains(values.back())) {
            std::string choices;
            for (const std::string& choice : allowed)
                choices += (choices.empty() ? "" : ", ") + choice;
            throw Error(fmt::format("--{} {}: unknown value '{}'", name, text, values.back()),
                        "choose one of " + choices);
        }
        begin = comma + 1;
    }
    return values;
}

std::vector<std::int64_t> thread_counts(const Options& options) {
    if (std::vector<std::int64_t> requested = options.integers("threads"); !requested.empty())
        return requested;
    std::vector<std::int64_t> counts{1};
    while (counts.back() * 2 < core_count()) counts.push_back(counts.back() * 2);
    if (core_count() > 1) counts.push_back(core_count());
    return counts;
}

// The reason why a point cannot be measured here; empty if it can.
std::string waived_reason(const Target& target, const Point& point) {
    const bool mapped = point.method == "mmap" || point.method == "stream";
    // A /dev/dax device has no read and write calls.
    if (target.is_device() && !mapped) return target.direct_unavailable();
    if (point.method == "direct" && target.direct_descriptor() < 0)
        return target.direct_unavailable();
    if (point.method == "stream" && !has_stream_copy)
        return "no non-temporal stores are known for this processor";
    if (target.bytes() / point.threads < point.size)
        return "a thread's part is shorter than a transfer: raise --bytes";
    return "";
}

std::vector<Point> parse_points(const Options& options) {
    std::vector<Point> points;
    for (const std::string& op : parse_list(options, "op", {"write", "read"}))
        for (const std::string& pattern : parse_list(options, "pattern", {"sequential", "random"}))
            for (const std::string& method :
                 parse_list(options, "method", {"call", "direct", "mmap", "stream"}))
                for (const std::int64_t threads : thread_counts(options))
                    for (const std::int64_t size : options.integers("sizes")) {
                        if (size % static_cast<std::int64_t>(data_page))
                            throw Error(fmt::format("--sizes {}: not a multiple of 4 KiB", size),
                                        "give multiples of 4 KiB");
                        if (op == "read" && method == "stream")
                            continue;  // non-temporal stores only write
                        points.push_back({op, pattern, method, static_cast<std::size_t>(threads),
                                          static_cast<std::size_t>(size)});
                    }
    return points;
}

class Sweep {
public:
    Sweep(const Options& options, Bench& bench, const Target& target)
        : bench_(bench),
          target_(target),
          seconds_(options.real("budget")),
          repeats_(options.integer("repeats")) {}

    void measure(const Point& point) {
        const Json params = {{"op", point.op},          {"pattern", point.pattern},
                             {"method", point.method},  {"threads", point.threads},
                             {"transfer", point.size},  {"file_system", target_.kind()},
                             {"bytes", target_.bytes()}};
        const Subject subject{.host = host_name(), .device = target_.path()};
        if (const std::string reason = waived_reason(target_, point); !reason.empty()) {
            // Reported once for a method and reason, not for each point.
            const std::string key = point.method + reason;
            if (reported_.insert(key).second)
                bench_.sink.waived(device, "bandwidth", subject, {{"method", point.method}},
                                   reason);
            return;
        }
        std::vector<double> bandwidths, rates;
        std::uint64_t wrong = 0;
        Histogram latency;
        for (std::int64_t k = 0; k < repeats_ && !interrupted(); ++k) {
            const Pass pass = run_pass(target_, point, seconds_, latency);
            bandwidths.push_back(pass.bandwidth);
            rates.push_back(pass.rate);
            wrong += pass.wrong;
        }
        if (bandwidths.empty()) return;
        bench_.sink.measurement(device, "bandwidth", subject, params, summarize(bandwidths),
                                bandwidths);
        bench_.sink.measurement(device, "rate", subject, params, summarize(rates), rates);
        bench_.sink.measurement(device, "latency", subject, params, latency.summary());
        if (point.op == "read" && target_.is_filled()) {
            const double count[] = {static_cast<double>(wrong)};
            bench_.sink.measurement(device, "wrong", subject, params, summarize(count));
        }
    }

    double seconds_per_point() const { return seconds_ * static_cast<double>(repeats_); }

private:
    Bench& bench_;
    const Target& target_;
    const double seconds_;
    const std::int64_t repeats_;
    std::set<std::string> reported_;
};

}  // namespace

void detail::run_device(const Options& options, Bench& bench) {
    catch_interrupts();  // so that the temporary file is removed
    const std::vector<Point> points = parse_points(options);
    const bool writes =
        std::ranges::any_of(points, [](const Point& point) { return point.op == "write"; });
    const Target target(options.text("path"), static_cast<std::size_t>(options.integer("bytes")),
                        writes, options.flag("overwrite"));
    Sweep sweep(options, bench, target);
    for (std::size_t k = 0; k < points.size() && !interrupted(); ++k) {
        const Point& point = points[k];
        const double remaining_s =
            static_cast<double>(points.size() - k) * sweep.seconds_per_point();
        bench.sink.progress(static_cast<double>(k) / static_cast<double>(points.size()),
                            fmt::format("{} {} {}, {} threads, {} B", point.op, point.pattern,
                                        point.method, point.threads, point.size),
                            remaining_s);
        sweep.measure(point);
    }
}

}  // namespace assay::storage
