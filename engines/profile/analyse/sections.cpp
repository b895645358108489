// Fills the parts of a heap profile other than the tree.
#include "profile/analyse/sections.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace assay::heap {
namespace {

constexpr std::size_t max_listed_sizes = 100;  // the most frequent sizes
constexpr std::size_t max_listed_lines = 200;  // the lines that touch most pages
constexpr std::array<const char*, 16> kind_names = {
    "",        "malloc", "calloc", "memalign", "realloc_from",
    "realloc", "free",   "map",    "unmap",    "brk",
    "",        "",       "",       "",         "",
    ""};

std::uint64_t line_number(int line) { return static_cast<std::uint64_t>(std::max(0, line)); }

// Trims the zeros at both ends of a histogram. The result begins with the number of the first bin.
template <typename Counts>
std::vector<std::uint64_t> trim_histogram(const Counts& counts) {
    const auto is_set = [](std::uint64_t n) { return n != 0; };
    const auto first = std::ranges::find_if(counts, is_set);
    const auto last = std::find_if(counts.rbegin(), counts.rend(), is_set).base();
    if (first == counts.end()) return {0};
    std::vector<std::uint64_t> list = {static_cast<std::uint64_t>(first - counts.begin())};
    list.insert(list.end(), first, last);
    return list;
}

}  // namespace

HeapProcess make_process_section(const TraceMetadata& metadata) {
    return {
        .pid = metadata.process.pid,
        .parent = metadata.process.parent,
        .program = metadata.program,
        .rank = metadata.rank,
        .seconds = metadata.seconds_at(metadata.process.end_ticks),
        .complete = metadata.process.end_state != 0,
        .detached = metadata.process.end_state == static_cast<std::uint32_t>(EndState::detached),
        .attached_after = metadata.attached_after,
        .at_least = metadata.process.min_block_bytes,
        .sample = metadata.process.sample_bytes};
}

HeapTotals make_totals_section(const TraceMetadata& metadata, const AllocationStats& stats) {
    return {.count = stats.count,
            .bytes = stats.bytes,
            .frees = stats.frees,
            .unknown_frees = stats.unknown_frees,
            .peak = stats.peak,
            .peak_count = stats.peak_count,
            .peak_seconds = stats.peak > 0 ? metadata.seconds_at(stats.peak_time) : 0.0,
            .leaked = stats.leaked,
            .leaked_count = stats.leaked_count,
            .mapped = stats.mapped,
            .mapped_bytes = stats.mapped_bytes};
}

std::vector<HeapThread> make_threads_section(const TraceMetadata& metadata,
                                             const AllocationStats& stats, Sites sites) {
    std::vector<HeapThread> threads;
    for (const auto& [serial, thread] : std::map(stats.threads.begin(), stats.threads.end())) {
        const auto name = metadata.thread_names.find(serial);
        HeapThread& section = threads.emplace_back(HeapThread{
            .thread = serial,
            .name = name != metadata.thread_names.end() ? name->second : "",
            .bytes = thread.bytes,
            .first = metadata.seconds_at(thread.first_event),
            .last = metadata.seconds_at(thread.last_event),
            .foreign_frees = thread.foreign_frees,
            .calls = {},
            .deepest = thread.deepest,
            .deepest_seconds = metadata.seconds_at(thread.deepest_time),
            .deepest_site = sites[thread.deepest_stack],
            .resident = thread.resident,
            .depth = thread.depth,
        });
        for (std::size_t k = 1; k < kind_names.size(); ++k)
            if (*kind_names[k] != 0 && thread.calls[k].count > 0)
                section.calls[kind_names[k]] = {
                    thread.calls[k].count, thread.calls[k].ticks() * metadata.seconds_per_tick()};
    }
    return threads;
}

HeapTimeline make_timeline_section(const TraceMetadata& metadata, const AllocationStats& stats) {
    HeapTimeline section{
        .start = metadata.seconds_at(stats.timeline.first),
        .step = static_cast<double>(stats.timeline.step) * metadata.seconds_per_tick(),
        .live = stats.timeline.live,
        .count = stats.timeline.count,
        .bytes = stats.timeline.bytes,
        .seconds = {},
        .virtual_ = {},
        .resident = {}};
    const double page = metadata.process.page_bytes;
    for (const MemorySample& sample : metadata.samples) {
        section.seconds.push_back(metadata.seconds_at(sample.time));
        section.virtual_.push_back(static_cast<double>(sample.virtual_pages) * page);
        section.resident.push_back(static_cast<double>(sample.resident_pages) * page);
    }
    return section;
}

void add_frequent_sizes(HeapProfile& profile, const AllocationStats& stats) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> counts;
    for (std::uint64_t size = 0; size < stats.exact_sizes.size(); ++size)
        if (stats.exact_sizes[size] > 0) counts.emplace_back(stats.exact_sizes[size], size);
    std::ranges::sort(counts, std::greater<>());
    for (std::size_t k = 0; k < std::min(counts.size(), max_listed_sizes); ++k) {
        profile.frequent_size.push_back(counts[k].second);
        profile.frequent_count.push_back(counts[k].first);
    }
}

std::map<std::string, HeapHistograms> make_histograms_section(
    const AllocationStats& stats, std::span<const std::uint32_t> functions) {
    using Counts = std::array<std::uint64_t, log2_bins>;
    std::map<std::uint32_t, std::pair<Counts, Counts>> sums;
    for (std::size_t node = 0; node < functions.size(); ++node) {
        if (stats.histograms[node] == nullptr) continue;
        auto& [sizes, lifetimes] = sums[functions[node]];
        for (std::size_t bin = 0; bin < log2_bins; ++bin) {
            sizes[bin] += stats.histograms[node]->sizes[bin];
            lifetimes[bin] += stats.histograms[node]->lifetimes[bin];
        }
    }
    std::map<std::string, HeapHistograms> section;
    for (const auto& [function, counts] : sums)
        section[std::to_string(function)] = {trim_histogram(counts.first),
                                             trim_histogram(counts.second)};
    return section;
}

std::optional<HeapFragmentation> make_fragmentation_section(const TraceMetadata& metadata,
                                                            const Fragmentation& fragmentation,
                                                            Sites sites) {
    if (fragmentation.pages == 0) return std::nullopt;
    HeapFragmentation section{.seconds = metadata.seconds_at(fragmentation.time),
                              .resident = fragmentation.resident,
                              .live = fragmentation.live,
                              .page_bytes = metadata.process.page_bytes,
                              .pages = fragmentation.pages,
                              .filled = {fragmentation.filled.begin(), fragmentation.filled.end()},
                              .pin_site = {},
                              .pin_bytes = {},
                              .pin_blocks = {}};
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> by_site;
    for (const Fragmentation::Pin& pin : fragmentation.pins) {
        by_site[sites[pin.stack]].first += pin.bytes;
        by_site[sites[pin.stack]].second += pin.blocks;
    }
    std::vector<std::pair<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>> ranked(
        by_site.begin(), by_site.end());
    std::ranges::sort(ranked, std::greater<>(), [](const auto& entry) { return entry.second; });
    for (const auto& [site, pin] : ranked) {
        section.pin_site.push_back(site);
        section.pin_bytes.push_back(pin.first);
        section.pin_blocks.push_back(pin.second);
    }
    return section;
}

namespace {

void add_touching_lines(HeapTouches& section, const TraceMetadata& metadata,
                        const FirstTouchStats& first_touches, const CallTree& tree, Sites sites,
                        Symbols& symbols) {
    std::map<std::tuple<std::string, std::string, int>, std::uint64_t> lines;
    const auto add = [&](const Location& location, std::uint64_t count) {
        lines[{location.function, location.file, location.line}] += count;
    };
    for (const auto& [site, count] : first_touches.faults_by_site)
        add(touching_location(metadata.fault_sites[site], symbols), count);
    for (const auto& [node, count] : first_touches.in_allocator)
        add(*tree.locations()[sites[node]].location, count);
    std::vector<std::pair<std::uint64_t, std::tuple<std::string, std::string, int>>> ranked;
    ranked.reserve(lines.size());
    for (const auto& [line, count] : lines) ranked.emplace_back(count, line);
    std::ranges::sort(ranked, std::greater<>());
    for (std::size_t k = 0; k < std::min(ranked.size(), max_listed_lines); ++k) {
        const auto& [function, file, line] = ranked[k].second;
        section.line_function.push_back(function);
        section.line_file.push_back(file);
        section.line.push_back(line_number(line));
        section.line_pages.push_back(ranked[k].first);
    }
}

}  // namespace

std::optional<HeapTouches> make_touches_section(const TraceMetadata& metadata,
                                                const FirstTouchStats& first_touches,
                                                const CallTree& tree, Sites sites,
                                                Symbols& symbols) {
    if (!metadata.has_page_faults) return std::nullopt;
    HeapTouches section;
    section.outside = first_touches.outside;
    add_touching_lines(section, metadata, first_touches, tree, sites, symbols);
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> by_site;
    for (const auto& [node, count] : first_touches.stacks) {
        by_site[sites[node]].first += count.touches;
        by_site[sites[node]].second += count.faults_with_huge_pages;
    }
    std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> ranked;
    ranked.reserve(by_site.size());
    for (const auto& [site, count] : by_site) ranked.emplace_back(count.first, count.second, site);
    std::ranges::sort(ranked, std::greater<>());
    for (std::size_t k = 0; k < std::min(ranked.size(), max_listed_lines); ++k) {
        section.site_pages.push_back(std::get<0>(ranked[k]));
        section.site_with_huge.push_back(std::get<1>(ranked[k]));
        section.site.push_back(std::get<2>(ranked[k]));
    }
    for (const auto& [thread, count] :
         std::map(first_touches.faults_by_thread.begin(), first_touches.faults_by_thread.end())) {
        section.thread.push_back(thread);
        section.thread_pages.push_back(count);
    }
    return section;
}

void add_globals(HeapProfile& profile, const Globals& globals) {
    for (const ObjectData& object : globals.objects)
        profile.objects.push_back(
            {object.path, object.data, object.bss, object.tls, object.variables, object.resident});
    for (const Variable& variable : globals.variables)
        profile.variables.push_back({variable.name, variable.object, variable.bytes,
                                     variable.per_thread, variable.file, line_number(variable.line),
                                     variable.resident});
}

}  // namespace assay::heap
