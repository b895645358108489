// Reads and checks the settings of an event builder.
#include "events/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/error.hpp"

namespace assay::events {
namespace {

constexpr std::size_t max_file_bytes = 64 << 20;

std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text;
    std::array<char, 1 << 16> part;
    while (file && text.size() <= max_file_bytes) {
        file.read(part.data(), part.size());
        text.append(part.data(), static_cast<std::size_t>(file.gcount()));
    }
    if (!file.eof() || text.size() > max_file_bytes)
        throw Error(fmt::format("{}: cannot be read", path),
                    "check that it is a text file that exists on every host");
    return text;
}

Policy parse_policy(const std::string& name) {
    if (name == "drop") return Policy::drop;
    if (name == "mark") return Policy::mark;
    if (name == "wait") return Policy::wait;
    throw Error(fmt::format("--policy {}: unknown", name), "give drop, mark or wait");
}

// Whether the option has its second value. Throws Error if it has neither.
bool is_second_choice(const Options& options, const char* name, const char* first,
                      const char* second) {
    const std::string& value = options.text(name);
    if (value != first && value != second)
        throw Error(fmt::format("--{} {}: unknown", name, value),
                    fmt::format("give {} or {}", first, second));
    return value == second;
}

Plan read_plan(const Options& options, int ranks, Schedule::Order order) {
    const std::string& path = options.text("schedule_file");
    if ((order == Schedule::Order::file) == path.empty())
        throw Error(path.empty() ? "--schedule file: no file"
                                 : fmt::format("--schedule-file {}: not used", path),
                    "give both: --schedule file --schedule-file exchange/schedule.txt");
    return path.empty() ? Plan() : Plan::from_text(read_text(path), path, ranks);
}

Nanoseconds nanoseconds(double s) { return static_cast<Nanoseconds>(std::llround(s * 1e9)); }

// The number of events whose fragments fill a message of the source with the largest fragments.
std::uint32_t fitting_events(std::size_t message, const Sizes& sizes, int sources) {
    double largest = 0;
    for (int source = 0; source < sources; ++source)
        largest = std::max(largest, sizes.mean(source) + sizeof(FragmentHeader));
    const double space = static_cast<double>(message - sizeof(MessageHeader));
    return static_cast<std::uint32_t>(std::clamp(space / largest, 1.0, 1e6));
}

}  // namespace

int Settings::source_number(int rank) const {
    return static_cast<int>(std::ranges::lower_bound(units.readouts, rank) -
                            units.readouts.begin());
}

EventGroup Settings::group(std::uint64_t number) const {
    const std::uint64_t first = number * events_per_message;
    const std::uint64_t remaining = events == 0 ? events_per_message : events - first;
    return {number, first,
            static_cast<std::uint32_t>(std::min<std::uint64_t>(remaining, events_per_message))};
}

Settings read_settings(const Options& options, int ranks) {
    const auto seed = static_cast<std::uint64_t>(options.integer("seed"));
    const bool split = is_second_choice(options, "units", "folded", "split");
    Units units = Units::assign(ranks, split, static_cast<int>(options.integer("filters")));
    const int sources = static_cast<int>(units.readouts.size());
    const auto fragment = static_cast<std::size_t>(options.integer("fragment"));
    const std::string& sizes_file = options.text("sizes_file");
    Sizes sizes = sizes_file.empty()
                      ? Sizes::fixed(static_cast<std::uint32_t>((fragment - sizeof(MessageHeader) -
                                                                 sizeof(FragmentHeader)) &
                                                                ~std::size_t{7}),
                                     sources)
                      : Sizes::read(read_text(sizes_file), sizes_file, sources, seed);
    const std::uint32_t events_per_message =
        sizes_file.empty() ? 1 : fitting_events(fragment, sizes, sources);
    const Schedule::Order order = Schedule::parse_order(options.text("schedule"));
    Settings settings{
        .pull = is_second_choice(options, "protocol", "push", "pull"),
        .synchronised = options.flag("synchronised"),
        .verify = !options.flag("no_verify"),
        .in_flight = static_cast<int>(options.integer("in_flight")),
        .credits = static_cast<int>(options.integer("credits")),
        .parallel = static_cast<int>(options.integer("parallel")),
        .policy = parse_policy(options.text("policy")),
        .fragment = options.integer("fragment"),
        .rate = options.real("rate"),
        .filter_rate = options.real("filter_rate"),
        .duration = nanoseconds(options.real("duration")),
        .events = static_cast<std::uint64_t>(options.integer("events")),
        .slice = nanoseconds(options.real("slice")),
        .timeout = nanoseconds(options.real("timeout")),
        .yield_after = options.integer("yield_us") * 1000,
        .units = std::move(units),
        .order = order,
        .seed = seed,
        .plan = read_plan(options, ranks, order),
        .format = {std::move(sizes), seed, !options.flag("no_verify")},
        .events_per_message = events_per_message,
    };
    if (settings.duration == 0 && settings.events == 0)
        throw Error("--duration 0 and --events 0: no end", "give one of them");
    if (settings.pull && settings.synchronised)
        throw Error("--synchronised --protocol pull: builder units ask in their own order",
                    "give --protocol push, or leave out --synchronised");
    if (settings.synchronised && settings.order == Schedule::Order::all)
        throw Error("--synchronised --schedule all: there are no steps", "give --schedule shift");
    return settings;
}

}  // namespace assay::events
