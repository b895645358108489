// Bandwidth between host memory and GPUs, measured as by NVIDIA's nvbandwidth (memcpy_ce: copies
// queued behind a blocker of the stream, timed by events, medians, contents compared). All GPUs at
// once are measured too, as in COBALT's gpu-copy test.
//
// One GPU is timed by its own events. GPUs have no common clock, so all GPUs together are timed by
// the host: from when it sees the first copies start until it sees the last ones end. A busy host
// sees the start late, so the time of all GPUs is at least that of each.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <future>
#include <vector>

#include "core/error.hpp"
#include "core/facts.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "machine/available_memory.hpp"
#include "node/gpu/device.hpp"
#include "node/gpu/gpu.hpp"

namespace assay::node {
namespace {

using namespace assay::gpu;
namespace fs = std::filesystem;

constexpr std::size_t min_copy = std::size_t{1} << 20;
constexpr std::size_t memory_step = std::size_t{64} << 10;

enum class Direction { h2d, d2h, both };
constexpr std::array directions = {Direction::h2d, Direction::d2h, Direction::both};

const char* direction_name(Direction d) {
    return d == Direction::h2d ? "h2d" : d == Direction::d2h ? "d2h" : "both";
}
bool includes(Direction d, CopyDirection direction) {
    return d == Direction::both || (d == Direction::h2d) == (direction == CopyDirection::h2d);
}

// The number of NVIDIA GPUs on the PCI bus, including those that the driver cannot use.
int gpus_on_bus() {
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(sysfs("bus/pci/devices"), ignored)) {
        const bool nvidia = read_line(entry.path() / "vendor") == "0x10de";
        count += nvidia && read_line(entry.path() / "class").starts_with("0x03");
    }
    return count;
}

// A message if the driver shows fewer GPUs than the PCI bus; empty if not, or if
// CUDA_VISIBLE_DEVICES excludes some.
std::string missing_gpus_message(int driver_gpus) {
    const int installed = gpus_on_bus();
    if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr || installed <= driver_gpus) return "";
    return fmt::format("the PCI bus has {} NVIDIA GPU{}, the driver shows {}", installed,
                       installed == 1 ? "" : "s", driver_gpus);
}

// The results of one direction on some GPUs, with a value for each repetition.
struct Series {
    explicit Series(std::size_t gpus) : each(gpus), link(gpus), corrupted(gpus), corruption(gpus) {}
    std::vector<double> total;              // B/s of all GPUs
    std::vector<std::vector<double>> each;  // B/s of each GPU
    std::vector<double> link;               // capacity of each GPU's PCIe link, B/s; 0 if unknown
    std::vector<int> corrupted;             // corrupted copies of each GPU
    std::vector<std::optional<CopyChannel::Corruption>> corruption;
};

struct CopySettings {
    CopySize size;
    std::size_t requested;  // bytes of each copy, before they were fitted to the memory
    std::int64_t repeats;
    double timeout;  // seconds
};

// A GPU and its channels.
struct GpuChannels {
    explicit GpuChannels(int number) : gpu(number) {}
    Gpu gpu;
    std::deque<CopyChannel> channels;  // declared after the GPU, so destroyed before it
};

// Measures the copies of one GPU after the other, then of all at once, and writes the records.
class Copier {
public:
    Copier(const CopySettings& settings, Sink& sink, std::deque<GpuChannels>& gpus)
        : settings_(settings),
          sink_(sink),
          gpus_(gpus),
          total_steps_((gpus.size() == 1 ? 1 : gpus.size() + 1) * directions.size()) {}

    void run();

private:
    using GpuList = std::vector<GpuChannels*>;
    using Scopes = std::vector<const char*>;  // "one": each GPU alone; "all": all at once

    void measure(const GpuList&, Direction, const Scopes&);
    void warm_up(const GpuList&, Direction, Series&) const;
    void repeat(const GpuList&, Direction, Series&) const;
    template <class Meanwhile>
    double copy(const GpuList&, Direction, Meanwhile) const;
    void verify(const GpuList&, Direction, Series&) const;
    void record(const GpuList&, Direction, const Scopes&, const Series&) const;
    void record_total(Json params, const Series&) const;
    Subject subject(const Gpu&) const;

    const CopySettings& settings_;
    Sink& sink_;
    std::deque<GpuChannels>& gpus_;
    std::size_t total_steps_, steps_done_ = 0;
};

// Runs `work` for each GPU in parallel, each on a thread on the GPU's own NUMA node.
template <class Work>
void on_each_gpu(const std::vector<GpuChannels*>& gpus, Work work) {
    std::vector<std::future<void>> tasks;
    tasks.reserve(gpus.size());
    for (std::size_t i = 0; i < gpus.size(); ++i)
        tasks.push_back(std::async(std::launch::async, [&gpus, &work, i] {
            gpus[i]->gpu.bind_thread();
            work(*gpus[i], i);
        }));
    std::exception_ptr failed;  // the first error, rethrown after all have ended
    for (auto& task : tasks) {
        try {
            task.get();
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
}

std::vector<CopyChannel*> channels_of(GpuChannels& gpu, Direction direction) {
    std::vector<CopyChannel*> channels;
    for (CopyChannel& channel : gpu.channels)
        if (includes(direction, channel.direction())) channels.push_back(&channel);
    return channels;
}

std::vector<CopyChannel*> channels_of(const std::vector<GpuChannels*>& gpus, Direction direction) {
    std::vector<CopyChannel*> channels;
    for (GpuChannels* gpu : gpus)
        std::ranges::copy(channels_of(*gpu, direction), std::back_inserter(channels));
    return channels;
}

std::size_t bytes_of(const std::vector<CopyChannel*>& channels) {
    std::size_t bytes = 0;
    for (const CopyChannel* channel : channels) bytes += channel->bytes();
    return bytes;
}

// Seconds from the first start to the last end, by the GPU's own clock.
double elapsed(const std::vector<CopyChannel*>& channels) {
    double longest = 0;
    for (const CopyChannel* started : channels)
        for (const CopyChannel* ended : channels)
            longest = std::max(longest, ended->elapsed(*started));
    return longest;
}

void Copier::run() {
    GpuList all;
    for (GpuChannels& gpu : gpus_) all.push_back(&gpu);
    if (all.size() > 1)
        for (GpuChannels* gpu : all)
            for (const Direction d : directions) measure({gpu}, d, {"one"});
    // The only GPU is alone and all at once.
    const Scopes scopes = all.size() > 1 ? Scopes{"all"} : Scopes{"one", "all"};
    for (const Direction d : directions) measure(all, d, scopes);
}

// What an interrupted series has is recorded too.
void Copier::measure(const GpuList& gpus, Direction direction, const Scopes& scopes) {
    const std::string label =
        gpus.size() == 1 ? gpus[0]->gpu.text() : fmt::format("all {} GPUs", gpus.size());
    Series series(gpus.size());
    for (std::int64_t k = -1; k < settings_.repeats; ++k) {
        if (interrupted()) break;
        const double part = static_cast<double>(k + 1) / static_cast<double>(settings_.repeats + 1);
        sink_.progress(
            (static_cast<double>(steps_done_) + part) / static_cast<double>(total_steps_),
            fmt::format("{} {}", label, direction_name(direction)));
        if (k < 0) warm_up(gpus, direction, series);
        else repeat(gpus, direction, series);
    }
    ++steps_done_;
    if (!series.total.empty()) record(gpus, direction, scopes, series);
    if (interrupted()) throw Error("interrupted: the results cover the copies until then");
}

// An untimed run of the copies. It reads the speed of the PCIe links meanwhile, because an idle GPU
// slows its link down.
void Copier::warm_up(const GpuList& gpus, Direction direction, Series& series) const {
    copy(gpus, direction, [&] {
        for (std::size_t i = 0; i < gpus.size(); ++i)
            series.link[i] = pcie_rate(gpus[i]->gpu.pci());
    });
}

void Copier::repeat(const GpuList& gpus, Direction direction, Series& series) const {
    on_each_gpu(gpus, [direction](GpuChannels& gpu, std::size_t) {
        for (CopyChannel* channel : channels_of(gpu, direction)) channel->clear();
    });
    double longest = copy(gpus, direction, [] {});
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        const auto channels = channels_of(*gpus[i], direction);
        const double own = elapsed(channels);
        series.each[i].push_back(static_cast<double>(bytes_of(channels)) / own);
        longest = std::max(longest, own);
    }
    series.total.push_back(static_cast<double>(bytes_of(channels_of(gpus, direction))) / longest);
    verify(gpus, direction, series);
}

// Runs the copies, and `meanwhile` after the first one has started. Returns the seconds from when
// the host sees the first copy start until it sees the last one end.
template <class Meanwhile>
double Copier::copy(const GpuList& gpus, Direction direction, Meanwhile meanwhile) const {
    const std::vector<CopyChannel*> channels = channels_of(gpus, direction);
    const StreamBlocker blocker;
    for (CopyChannel* channel : channels) channel->queue(blocker);
    const Nanoseconds release_time = now();
    blocker.release();
    const auto wait_on = [&](const CopyChannel& channel) {
        if (seconds(now() - release_time) > settings_.timeout)
            channel.gpu().give_up(fmt::format(
                "does not answer: its copies have not ended within {:g} s", settings_.timeout));
    };
    while (std::ranges::none_of(channels,
                                [](const CopyChannel* channel) { return channel->started(); }))
        wait_on(*channels[0]);
    const Nanoseconds started = now();
    meanwhile();
    for (const CopyChannel* channel : channels)
        while (!channel->finished()) wait_on(*channel);
    return seconds(now() - started);
}

void Copier::verify(const GpuList& gpus, Direction direction, Series& series) const {
    on_each_gpu(gpus, [&](GpuChannels& gpu, std::size_t i) {
        for (CopyChannel* channel : channels_of(gpu, direction)) {
            std::optional<CopyChannel::Corruption> first;
            series.corrupted[i] += channel->verify(first);
            if (first && !series.corruption[i]) series.corruption[i] = first;
        }
    });
}

Subject Copier::subject(const Gpu& gpu) const {
    Subject subject{.host = host_name(), .device = fmt::format("gpu{}", gpu.number())};
    subject.numa = gpu.numa();
    return subject;
}

// Wrong bytes and links are recorded once, also where two scopes have the same copies.
void Copier::record(const GpuList& gpus, Direction direction, const Scopes& scopes,
                    const Series& series) const {
    Json common = {{"direction", direction_name(direction)},
                   {"gpus", scopes.front()},
                   {"size", settings_.size.bytes},
                   {"copies", settings_.size.copies}};
    if (settings_.requested != settings_.size.bytes) common["requested"] = settings_.requested;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
        const Gpu& gpu = gpus[i]->gpu;
        Json params = common;
        params["name"] = gpu.name();
        params["pci"] = gpu.pci();
        params["uuid"] = gpu.uuid();
        for (const char* scope : scopes) {
            Json scoped = params;
            scoped["gpus"] = scope;
            sink_.measurement(gpu_copy, "bandwidth", subject(gpu), scoped,
                              summarize(series.each[i]), series.each[i]);
        }
        const auto single = [&](const char* metric, double value) {
            sink_.measurement(gpu_copy, metric, subject(gpu), params, summarize({&value, 1}));
        };
        single("corrupted", series.corrupted[i]);
        if (series.link[i] > 0) single("link", series.link[i]);
        if (const auto& first = series.corruption[i])
            sink_.corruption(gpu_copy, subject(gpu), params,
                             static_cast<std::uint64_t>(first->copy), first->offset,
                             first->expected, first->observed);
    }
    if (std::string_view(scopes.back()) == "all") record_total(common, series);
}

void Copier::record_total(Json params, const Series& series) const {
    params.erase("gpus");
    params["count"] = gpus_.size();
    const Summary total = summarize(series.total);
    const std::string missing = missing_gpus_message(static_cast<int>(gpus_.size()));
    if (missing.empty())
        sink_.measurement(gpu_copy, "total", {.host = host_name()}, params, total, series.total);
    else sink_.doubtful(gpu_copy, "total", {.host = host_name()}, params, total, missing);
}

// ---- available GPUs and memory

// The number of usable GPUs; if 0, `reason` is set to the reason.
int count_gpus(std::string& reason) {
    int count = 0;
    Result code = driver().init(0);
    if (code == result::success) code = driver().device_count(&count);
    if (code == result::success && count > 0) return count;
    reason = code == result::success || code == result::no_device
                 ? "NVIDIA's driver finds no GPU"
                 : "NVIDIA's driver does not start: " + driver().error_text(code);
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
        reason += fmt::format(" with CUDA_VISIBLE_DEVICES='{}'; the PCI bus has {}", visible,
                              gpus_on_bus());
    if (const std::string missing = missing_gpus_message(0); !missing.empty())
        reason += "; " + missing;
    return 0;
}

// Limits the size so that the buffers of all channels fit into half of the free memory, on the host
// and on each GPU.
CopySize fit_memory(CopySize requested, const std::deque<GpuChannels>& gpus) {
    std::size_t limit = available_memory() / 4 / gpus.size();
    for (const GpuChannels& gpu : gpus) limit = std::min(limit, gpu.gpu.free_memory() / 4);
    CopySize size = requested;
    size.bytes = std::min(requested.bytes, limit / static_cast<std::size_t>(requested.copies) /
                                               memory_step * memory_step);
    if (size.bytes == requested.bytes) return size;
    if (size.bytes < min_copy)
        throw Error(
            fmt::format("too little free memory: {} MiB for each GPU and direction, on the GPU and "
                        "on this host",
                        limit >> 20),
            "see in nvidia-smi who uses the GPUs' memory; free some, or test on an idle node");
    return size;
}

}  // namespace

// Only loads the library: starting the driver takes a second, and --describe calls this each time.
std::optional<std::string> detail::no_gpu_driver() {
    if (driver().missing.empty()) return std::nullopt;
    const std::string missing = missing_gpus_message(0);
    return driver().missing + (missing.empty() ? "" : "; " + missing);
}

void detail::run_gpu_copy(const Options& options, Bench& bench) {
    std::string reason;
    const int count = count_gpus(reason);
    if (count == 0) {
        for (const Metric& metric : gpu_copy_metrics)
            bench.sink.waived(gpu_copy, metric.name, {.host = host_name()}, Json::object(), reason);
        return;
    }
    if (options.flag("realtime")) enter_realtime();
    catch_interrupts();
    const std::size_t requested = static_cast<std::size_t>(options.integer("size")) / 8 * 8;
    CopySettings settings{{requested, static_cast<int>(options.integer("copies"))},
                          requested,
                          options.integer("repeats"),
                          options.real("timeout")};
    std::deque<GpuChannels> gpus;
    for (int g = 0; g < count; ++g) gpus.emplace_back(g);
    settings.size = fit_memory(settings.size, gpus);
    for (GpuChannels& gpu : gpus)
        for (const CopyDirection direction : {CopyDirection::h2d, CopyDirection::d2h})
            gpu.channels.emplace_back(gpu.gpu, direction, settings.size, settings.timeout);
    Copier(settings, bench.sink, gpus).run();
}

}  // namespace assay::node
