// Bandwidth between host memory and GPUs, as NVIDIA's nvbandwidth measures it (memcpy_ce: copies
// queued behind a gate, events around them, medians, contents compared), for all GPUs at once as
// well: COBALT's gpu-copy.
//
// The time of one GPU is taken by its own events. GPUs have no clock in common, so that of all
// together is this host's: from when the first one's copies are seen to have begun until the last
// one's are seen to have ended.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/facts.hpp"
#include "core/interrupt.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "node/gpu/device.hpp"
#include "node/gpu/gpu.hpp"

namespace assay::node {
namespace {

using namespace assay::gpu;
namespace fs = std::filesystem;

constexpr std::size_t least_copy = std::size_t{1} << 20;
constexpr std::size_t memory_step = std::size_t{64} << 10;

enum class Direction { h2d, d2h, both };
constexpr std::array directions = {Direction::h2d, Direction::d2h, Direction::both};

const char* text(Direction d) {
    return d == Direction::h2d ? "h2d" : d == Direction::d2h ? "d2h" : "both";
}
bool goes(Direction d, Way way) {
    return d == Direction::both || (d == Direction::h2d) == (way == Way::to);
}

// NVIDIA display controllers on the PCI bus, whether the driver can use them or not.
int gpus_on_bus() {
    int count = 0;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(sysfs("bus/pci/devices"), none)) {
        const bool nvidia = read_line(entry.path() / "vendor") == "0x10de";
        count += nvidia && read_line(entry.path() / "class").starts_with("0x03");
    }
    return count;
}

// Words, where GPUs are missing that nobody has left out on purpose.
std::string fewer_than_installed(int seen) {
    const int there = gpus_on_bus();
    if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr || there <= seen) return "";
    return fmt::format("the PCI bus has {} NVIDIA GPU{}, the driver shows {}", there,
                       there == 1 ? "" : "s", seen);
}

// What one direction of some GPUs came to: a value for each repetition.
struct Series {
    explicit Series(std::size_t gpus) : each(gpus), link(gpus), corrupted(gpus), wrong(gpus) {}
    std::vector<double> total;              // B/s
    std::vector<std::vector<double>> each;  // B/s, by GPU as all that follow
    std::vector<double> link;               // B/s; 0 where it is not known
    std::vector<int> corrupted;             // copies
    std::vector<std::optional<Lane::Wrong>> wrong;
};

struct Setting {
    Load load;
    std::int64_t repeats;
    double timeout;
};

// A GPU with both its lanes.
struct Card {
    explicit Card(int number) : gpu(number) {}
    Gpu gpu;
    std::deque<Lane> lanes;  // after the GPU: they end before it
};

class Copier {
public:
    Copier(const Setting& setting, Sink& sink, std::deque<Card>& cards)
        : setting_(setting),
          sink_(sink),
          cards_(cards),
          steps_((cards.size() + 1) * directions.size()) {}

    void run();

private:
    using Cards = std::vector<Card*>;

    void measure(const Cards&, Direction, const char* gpus);
    void warm_up(const Cards&, Direction, Series&) const;
    void repeat(const Cards&, Direction, Series&) const;
    template <class Meanwhile>
    double copy(const Cards&, Direction, Meanwhile) const;
    void verify(const Cards&, Direction, Series&) const;
    void record(const Cards&, Direction, const char* gpus, const Series&) const;
    Subject subject(const Gpu&) const;

    const Setting& setting_;
    Sink& sink_;
    std::deque<Card>& cards_;
    std::size_t steps_, step_ = 0;
};

// Work on the host's side of each GPU: all at once, each on the GPU's own NUMA node.
template <class Work>
void on_each(const std::vector<Card*>& cards, Work work) {
    std::vector<std::future<void>> working;
    for (std::size_t i = 0; i < cards.size(); ++i)
        working.push_back(std::async(std::launch::async, [&cards, &work, i] {
            cards[i]->gpu.bind();
            work(*cards[i], i);
        }));
    std::exception_ptr failed;  // the first one, once all have ended
    for (auto& one : working) {
        try {
            one.get();
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    if (failed) std::rethrow_exception(failed);
}

std::vector<Lane*> lanes_of(Card& card, Direction direction) {
    std::vector<Lane*> lanes;
    for (Lane& lane : card.lanes)
        if (goes(direction, lane.way())) lanes.push_back(&lane);
    return lanes;
}

std::vector<Lane*> lanes_of(const std::vector<Card*>& cards, Direction direction) {
    std::vector<Lane*> lanes;
    for (Card* card : cards)
        std::ranges::copy(lanes_of(*card, direction), std::back_inserter(lanes));
    return lanes;
}

std::size_t bytes_of(const std::vector<Lane*>& lanes) {
    std::size_t bytes = 0;
    for (const Lane* lane : lanes) bytes += lane->bytes();
    return bytes;
}

// Seconds from the first beginning to the last end, by the GPU's own clock.
double elapsed(const std::vector<Lane*>& lanes) {
    double longest = 0;
    for (const Lane* begun : lanes)
        for (const Lane* ended : lanes) longest = std::max(longest, ended->elapsed(*begun));
    return longest;
}

void Copier::run() {
    Cards all;
    for (Card& card : cards_) all.push_back(&card);
    for (Card* card : all)
        for (const Direction d : directions) measure({card}, d, "one");
    for (const Direction d : directions) measure(all, d, "all");
}

void Copier::measure(const Cards& cards, Direction direction, const char* gpus) {
    const std::string who =
        cards.size() == 1 ? cards[0]->gpu.text() : fmt::format("all {} GPUs", cards.size());
    Series series(cards.size());
    for (std::int64_t k = -1; k < setting_.repeats; ++k) {
        if (interrupted())
            throw Error("interrupted: the figures are of what was copied until then");
        const double part = static_cast<double>(k + 1) / static_cast<double>(setting_.repeats + 1);
        sink_.progress((static_cast<double>(step_) + part) / static_cast<double>(steps_),
                       fmt::format("{} {}", who, text(direction)));
        if (k < 0) warm_up(cards, direction, series);
        else repeat(cards, direction, series);
    }
    ++step_;
    record(cards, direction, gpus, series);
}

// An idle GPU slows its link down: how fast it is can only be seen while it copies.
void Copier::warm_up(const Cards& cards, Direction direction, Series& series) const {
    copy(cards, direction, [&] {
        for (std::size_t i = 0; i < cards.size(); ++i)
            series.link[i] = pcie_rate(cards[i]->gpu.pci());
    });
}

void Copier::repeat(const Cards& cards, Direction direction, Series& series) const {
    on_each(cards, [direction](Card& card, std::size_t) {
        for (Lane* lane : lanes_of(card, direction)) lane->clear();
    });
    series.total.push_back(static_cast<double>(bytes_of(lanes_of(cards, direction))) /
                           copy(cards, direction, [] {}));
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const auto own = lanes_of(*cards[i], direction);
        series.each[i].push_back(static_cast<double>(bytes_of(own)) / elapsed(own));
    }
    verify(cards, direction, series);
}

// Seconds from when the first copy is seen to have begun until the last one is seen to have ended.
template <class Meanwhile>
double Copier::copy(const Cards& cards, Direction direction, Meanwhile meanwhile) const {
    const std::vector<Lane*> lanes = lanes_of(cards, direction);
    const Gate gate;
    for (Lane* lane : lanes) lane->queue(gate);
    const Nanoseconds opened = now();
    gate.open();
    const auto wait_on = [&](const Lane& lane) {
        if (seconds(now() - opened) > setting_.timeout)
            lane.gpu().give_up(fmt::format(
                "does not answer: its copies have not ended within {:g} s", setting_.timeout));
    };
    while (std::ranges::none_of(lanes, [](const Lane* lane) { return lane->started(); }))
        wait_on(*lanes[0]);
    const Nanoseconds begun = now();
    meanwhile();
    for (const Lane* lane : lanes)
        while (!lane->finished()) wait_on(*lane);
    return seconds(now() - begun);
}

void Copier::verify(const Cards& cards, Direction direction, Series& series) const {
    on_each(cards, [&](Card& card, std::size_t i) {
        for (Lane* lane : lanes_of(card, direction)) {
            std::optional<Lane::Wrong> first;
            series.corrupted[i] += lane->verify(first);
            if (first && !series.wrong[i]) series.wrong[i] = first;
        }
    });
}

Subject Copier::subject(const Gpu& gpu) const {
    Subject subject{.host = host_name(), .device = fmt::format("gpu{}", gpu.number())};
    subject.numa = gpu.numa();
    return subject;
}

void Copier::record(const Cards& cards, Direction direction, const char* gpus,
                    const Series& series) const {
    const Json common = {{"direction", text(direction)},
                         {"gpus", gpus},
                         {"size", setting_.load.bytes},
                         {"copies", setting_.load.copies}};
    for (std::size_t i = 0; i < cards.size(); ++i) {
        const Gpu& gpu = cards[i]->gpu;
        Json params = common;
        params["name"] = gpu.name();
        params["pci"] = gpu.pci();
        sink_.measurement(gpu_copy, "bandwidth", subject(gpu), params, summarize(series.each[i]),
                          series.each[i]);
        const auto single = [&](const char* metric, double value) {
            sink_.measurement(gpu_copy, metric, subject(gpu), params, summarize({&value, 1}));
        };
        single("corrupted", series.corrupted[i]);
        if (series.link[i] > 0) single("link", series.link[i]);
        if (const auto& wrong = series.wrong[i])
            sink_.corruption(gpu_copy, subject(gpu), params, 0, wrong->offset, wrong->expected,
                             wrong->observed);
    }
    if (std::string_view(gpus) != "all") return;
    Json params = common;
    params.erase("gpus");
    params["count"] = cards.size();
    const Summary total = summarize(series.total);
    const std::string fewer = fewer_than_installed(static_cast<int>(cards.size()));
    if (fewer.empty())
        sink_.measurement(gpu_copy, "total", {.host = host_name()}, params, total, series.total);
    else sink_.doubtful(gpu_copy, "total", {.host = host_name()}, params, total, fewer);
}

// ---- what there is to measure

// GPUs that can be used; or the reason why there is none.
int count_gpus(std::string& why) {
    int count = 0;
    Result code = driver().init(0);
    if (code == result::success) code = driver().device_count(&count);
    if (code == result::success && count > 0) return count;
    why = code == result::success || code == result::no_device
              ? "NVIDIA's driver finds no GPU"
              : "NVIDIA's driver does not start: " + driver().words(code);
    if (const std::string fewer = fewer_than_installed(0); !fewer.empty()) why += "; " + fewer;
    return 0;
}

// Both ways of every GPU need memory on both sides. Half of what is free is left alone.
Load fit(Load wanted, const std::deque<Card>& cards) {
    std::size_t room = available_memory() / 4 / cards.size();
    for (const Card& card : cards) room = std::min(room, card.gpu.free_memory() / 4);
    Load load = wanted;
    load.bytes = std::min(
        wanted.bytes, room / static_cast<std::size_t>(wanted.copies) / memory_step * memory_step);
    if (load.bytes == wanted.bytes) return load;
    if (load.bytes < least_copy)
        throw Error(
            fmt::format(
                "too little free memory: {} MiB for each GPU and way, on it and on this host",
                room >> 20),
            "nvidia-smi shows who uses the GPUs' memory; free some, or test on an idle node");
    fmt::print(stderr, "assay-probe: copies of {} MiB, for want of memory, in place of {} MiB\n",
               load.bytes >> 20, wanted.bytes >> 20);
    return load;
}

}  // namespace

// Loading the library says little of the GPUs, but the driver takes a second to start, and this is
// asked often.
std::optional<std::string> detail::no_gpu_driver() {
    if (driver().missing.empty()) return std::nullopt;
    const std::string fewer = fewer_than_installed(0);
    return driver().missing + (fewer.empty() ? "" : "; " + fewer);
}

void detail::run_gpu_copy(const Options& options, Bench& bench) {
    std::string why;
    const int count = count_gpus(why);
    if (count == 0) {
        for (const Metric& metric : gpu_copy_metrics)
            bench.sink.waived(gpu_copy, metric.name, {.host = host_name()}, Json::object(), why);
        return;
    }
    if (options.flag("realtime")) enter_realtime();
    catch_interrupts();
    Setting setting{{static_cast<std::size_t>(options.integer("size")) / 8 * 8,
                     static_cast<int>(options.integer("copies"))},
                    options.integer("repeats"),
                    options.real("timeout")};
    std::deque<Card> cards;
    for (int g = 0; g < count; ++g) cards.emplace_back(g);
    setting.load = fit(setting.load, cards);
    for (Card& card : cards)
        for (const Way way : {Way::to, Way::from})
            card.lanes.emplace_back(card.gpu, way, setting.load, setting.timeout);
    Copier(setting, bench.sink, cards).run();
}

}  // namespace assay::node
