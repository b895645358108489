#include "profile/analyse/analyse.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/allocation_stats.hpp"
#include "profile/analyse/call_tree.hpp"
#include "profile/analyse/first_touch.hpp"
#include "profile/analyse/fragmentation.hpp"
#include "profile/analyse/globals.hpp"
#include "profile/analyse/metadata.hpp"
#include "profile/trace/event_merger.hpp"

namespace assay::heap {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t timeline_steps = 500;
constexpr std::size_t max_listed_sizes = 100;  // the most frequent
constexpr std::size_t max_listed_lines = 200;  // those that touch most pages
constexpr std::array<const char*, 16> kind_names = {
    "",        "malloc", "calloc", "memalign", "realloc_from",
    "realloc", "free",   "map",    "unmap",    "brk",
    "",        "",       "",       "",         "",
    ""};

// Numbers the groups of stacks for GroupPeaks: the subtree of each node, and for each line and each
// function its exclusive and its inclusive allocations.
class Groups {
public:
    explicit Groups(const CallTree& tree)
        : tree_(tree), node_count_(tree.nodes().size()), location_count_(tree.locations().size()) {}
    std::size_t count() const { return node_count_ + 4 * location_count_; }
    std::vector<std::uint32_t> of(std::uint32_t node) const {
        std::set<std::uint32_t> groups;
        for (std::uint32_t ancestor = node; ancestor != CallTree::none;
             ancestor = tree_.nodes()[ancestor].parent) {
            const std::uint32_t location = tree_.nodes()[ancestor].location;
            groups.insert(
                {subtree(ancestor), line_inclusive(location), function_inclusive(location)});
        }
        const std::uint32_t site = tree_.allocation_site(node);
        groups.insert({line_exclusive(site), function_exclusive(site)});
        return {groups.begin(), groups.end()};
    }
    std::uint32_t subtree(std::uint32_t node) const { return node; }
    std::uint32_t line_exclusive(std::uint32_t location) const { return number(0, location); }
    std::uint32_t line_inclusive(std::uint32_t location) const { return number(1, location); }
    std::uint32_t function_exclusive(std::uint32_t location) const {
        return number(2, tree_.locations()[location].function_id);
    }
    std::uint32_t function_inclusive(std::uint32_t location) const {
        return number(3, tree_.locations()[location].function_id);
    }

private:
    std::uint32_t number(std::size_t table, std::uint32_t location) const {
        return static_cast<std::uint32_t>(node_count_ + table * location_count_ + location);
    }

    const CallTree& tree_;
    std::size_t node_count_, location_count_;
};

// Measures fragmentation at the moment when resident memory exceeds live bytes most.
class WorstFragmentation {
public:
    explicit WorstFragmentation(const TraceMetadata& metadata)
        : metadata_(metadata), page_(metadata.process.page_bytes) {}
    void advance_to(std::uint64_t time, const AllocationStats& stats) {
        for (; next_ < metadata_.samples.size() && metadata_.samples[next_].time <= time; ++next_) {
            const std::uint64_t resident =
                static_cast<std::uint64_t>(metadata_.samples[next_].resident_pages) * page_;
            const std::uint64_t gap = resident - std::min(resident, stats.live);
            if (gap <= min_gap ||
                static_cast<double>(gap) < min_growth * static_cast<double>(max_gap_))
                continue;
            max_gap_ = gap;
            fragmentation = measure_fragmentation(stats.blocks(), page_);
            fragmentation.time = metadata_.samples[next_].time;
            fragmentation.resident = resident;
        }
    }

    Fragmentation fragmentation;

private:
    static constexpr double min_growth =
        1.25;  // of the gap since the last measurement, which takes time
    static constexpr std::uint64_t min_gap = 1 << 20;  // bytes

    const TraceMetadata& metadata_;
    std::uint64_t page_, max_gap_ = 0;
    std::size_t next_ = 0;
};

Json histogram_json(const std::array<std::uint32_t, log2_bins>& counts) {
    const auto is_set = [](std::uint32_t n) { return n != 0; };
    const auto first = std::ranges::find_if(counts, is_set);
    const auto last = std::find_if(counts.rbegin(), counts.rend(), is_set).base();
    Json list = Json::array({first == counts.end() ? 0 : first - counts.begin()});
    for (auto count = first; count < last; ++count) list.push_back(*count);
    return list;
}

Json tree_json(const CallTree& tree, const AllocationStats& stats, const Groups& groups,
               const GroupPeaks& peaks) {
    Json locations = Json::array(), nodes = Json::array(), histograms = Json::object();
    for (std::uint32_t k = 0; k < tree.locations().size(); ++k) {
        const CallTree::TreeLocation& entry = tree.locations()[k];
        const Location& location = *entry.location;
        locations.push_back(
            {location.function, location.file, location.line, location.module, location.inlined,
             entry.is_allocator_frame, entry.function_id, peaks.peak(groups.line_exclusive(k)),
             peaks.peak(groups.line_inclusive(k)), peaks.peak(groups.function_exclusive(k)),
             peaks.peak(groups.function_inclusive(k))});
    }
    for (std::uint32_t k = 0; k < tree.nodes().size(); ++k) {
        const CallTree::Node& n = tree.nodes()[k];
        const StackStats& s = stats.stacks[k];
        nodes.push_back({n.parent == CallTree::none ? -1 : static_cast<std::int64_t>(n.parent),
                         n.location,
                         s.count,
                         s.bytes,
                         s.peak,
                         peaks.peak(groups.subtree(k)),
                         s.at_peak,
                         s.live,
                         s.live_count,
                         s.temporary,
                         s.reallocated,
                         s.frees,
                         s.lifetime_sum,
                         s.sampled_ticks,
                         s.sampled_calls,
                         s.sampled_free_ticks,
                         s.sampled_frees,
                         s.count > 0 ? s.min_size : 0,
                         s.max_size,
                         s.max_lifetime > 0 ? s.min_lifetime : 0,
                         s.max_lifetime,
                         s.foreign_reallocations});
        // emplace_back() does not search for the key, which is new.
        if (stats.histograms[k] != nullptr)
            histograms.get_ref<Json::object_t&>().emplace_back(
                std::to_string(k), Json{histogram_json(stats.histograms[k]->sizes),
                                        histogram_json(stats.histograms[k]->lifetimes)});
    }
    return {{"locations", locations}, {"nodes", nodes}, {"histograms", histograms}};
}

Json threads_json(const TraceMetadata& metadata, const AllocationStats& stats) {
    Json threads = Json::array();
    for (const auto& [serial, thread] : std::map(stats.threads.begin(), stats.threads.end())) {
        Json calls = Json::object();
        for (std::size_t k = 1; k < kind_names.size(); ++k)
            if (*kind_names[k] != 0 && thread.calls[k].count > 0)
                calls[kind_names[k]] = {
                    {"count", thread.calls[k].count},
                    {"seconds", thread.calls[k].ticks() * metadata.seconds_per_tick()}};
        const auto name = metadata.thread_names.find(serial);
        threads.push_back({{"thread", serial},
                           {"name", name != metadata.thread_names.end() ? name->second : ""},
                           {"bytes", thread.bytes},
                           {"first", metadata.seconds_at(thread.first_event)},
                           {"last", metadata.seconds_at(thread.last_event)},
                           {"foreign_frees", thread.foreign_frees},
                           {"calls", calls},
                           {"stack",
                            {{"deepest", thread.deepest},
                             {"seconds", metadata.seconds_at(thread.deepest_time)},
                             {"node", thread.deepest_stack},
                             {"resident", thread.resident},
                             {"depth", thread.depth}}}});
    }
    return threads;
}

Json timeline_json(const TraceMetadata& metadata, const AllocationStats& stats) {
    Json samples = Json::array();
    const double page = metadata.process.page_bytes;
    for (const MemorySample& sample : metadata.samples)
        samples.push_back({metadata.seconds_at(sample.time),
                           static_cast<double>(sample.virtual_pages) * page,
                           static_cast<double>(sample.resident_pages) * page});
    return {{"start", metadata.seconds_at(stats.timeline.first)},
            {"step", static_cast<double>(stats.timeline.step) * metadata.seconds_per_tick()},
            {"live", stats.timeline.live},
            {"count", stats.timeline.count},
            {"bytes", stats.timeline.bytes},
            {"samples", samples}};
}

// The most frequent exact sizes: [bytes, blocks].
Json sizes_json(const AllocationStats& stats) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> counts;
    for (std::uint64_t size = 0; size < stats.exact_sizes.size(); ++size)
        if (stats.exact_sizes[size] > 0) counts.emplace_back(stats.exact_sizes[size], size);
    std::ranges::sort(counts, std::greater<>());
    Json sizes = Json::array();
    for (std::size_t k = 0; k < std::min(counts.size(), max_listed_sizes); ++k)
        sizes.push_back({counts[k].second, counts[k].first});
    return sizes;
}

Json fragmentation_json(const TraceMetadata& metadata, const Fragmentation& fragmentation) {
    if (fragmentation.pages == 0) return nullptr;
    Json pins = Json::array();
    for (const Fragmentation::Pin& pin : fragmentation.pins)
        pins.push_back({pin.stack, pin.bytes, pin.blocks});
    return {{"seconds", metadata.seconds_at(fragmentation.time)},
            {"resident", fragmentation.resident},
            {"live", fragmentation.live},
            {"page_bytes", metadata.process.page_bytes},
            {"pages", fragmentation.pages},
            {"filled", fragmentation.filled},
            {"pins", pins}};
}

// First touches: lines as [function, file, line, pages], stacks as [node, pages, page faults that
// would remain with huge pages].
Json touches_json(const TraceMetadata& metadata, const FirstTouchStats& first_touches,
                  const CallTree& tree, Symbols& symbols) {
    if (!metadata.has_page_faults) return nullptr;
    std::map<std::tuple<std::string, std::string, int>, std::uint64_t> lines;
    const auto add = [&](const Location& location, std::uint64_t count) {
        lines[{location.function, location.file, location.line}] += count;
    };
    for (const auto& [site, count] : first_touches.sites)
        add(touching_location(metadata.fault_sites[site], symbols), count);
    for (const auto& [node, count] : first_touches.in_allocator)
        add(*tree.locations()[tree.allocation_site(node)].location, count);
    std::vector<std::pair<std::uint64_t, std::tuple<std::string, std::string, int>>> ranked;
    ranked.reserve(lines.size());
    for (const auto& [line, count] : lines) ranked.emplace_back(count, line);
    std::ranges::sort(ranked, std::greater<>());
    Json by_line = Json::array(), by_stack = Json::array(), by_thread = Json::array();
    for (std::size_t k = 0; k < std::min(ranked.size(), max_listed_lines); ++k) {
        const auto& [function, file, line] = ranked[k].second;
        by_line.push_back({function, file, line, ranked[k].first});
    }
    for (const auto& [node, count] :
         std::map(first_touches.stacks.begin(), first_touches.stacks.end()))
        by_stack.push_back({node, count.touches, count.with_huge});
    for (const auto& [thread, count] :
         std::map(first_touches.threads.begin(), first_touches.threads.end()))
        by_thread.push_back({thread, count});
    return {{"outside", first_touches.outside},
            {"lines", by_line},
            {"stacks", by_stack},
            {"threads", by_thread}};
}

Json globals_json(const TraceMetadata& metadata, const Globals& globals) {
    const auto or_null = [](const std::optional<std::uint64_t>& bytes) {
        return bytes ? Json(*bytes) : Json(nullptr);
    };
    Json objects = Json::array(), variables = Json::array();
    for (const ObjectData& o : globals.objects)
        objects.push_back({o.path, o.data, o.bss, o.tls, o.variables, or_null(o.resident)});
    for (const Variable& v : globals.variables)
        variables.push_back(
            {v.name, v.object, v.bytes, v.per_thread, v.file, v.line, or_null(v.resident)});
    return {
        {"seconds", metadata.mappings_time > 0 ? Json(metadata.seconds_at(metadata.mappings_time))
                                               : Json(nullptr)},
        {"objects", objects},
        {"variables", variables}};
}

}  // namespace

// Declared in the order of construction.
struct Analysis::State {
    State(const TraceMetadata& trace_metadata, Symbols& trace_symbols)
        : metadata(trace_metadata),
          symbols(trace_symbols),
          tree(metadata.nodes, metadata.python, symbols),
          groups(tree),
          peaks(groups.count(), [this](std::uint32_t node) { return groups.of(node); }),
          stats(metadata.first_event > metadata.last_event ? 0 : metadata.first_event,
                metadata.first_event > metadata.last_event ? 0 : metadata.last_event,
                timeline_steps, tree.nodes().size(), &peaks, metadata.process.sample),
          worst_fragmentation(metadata),
          first_touches(metadata) {}

    const TraceMetadata& metadata;
    Symbols& symbols;
    CallTree tree;
    Groups groups;
    GroupPeaks peaks;
    AllocationStats stats;
    WorstFragmentation worst_fragmentation;
    FirstTouchStats first_touches;
};

Analysis::Analysis(const TraceMetadata& metadata, Symbols& symbols)
    : state_(std::make_unique<State>(metadata, symbols)) {}
Analysis::~Analysis() = default;

void Analysis::add(std::uint32_t thread, Event event) {
    event.stack = state_->tree.node_of(event.stack);
    // In an attached process, pages that look empty may hold blocks from before.
    if (!state_->metadata.attached_after)
        state_->worst_fragmentation.advance_to(event.time, state_->stats);
    state_->first_touches.advance_to(event.time, state_->stats.blocks());
    state_->first_touches.add(thread, event);
    state_->stats.add(thread, event);
}

void Analysis::write_json(const ReadSummary& summary, std::FILE* output) {
    auto& [metadata, symbols, tree, groups, peaks, stats, worst_fragmentation, first_touches] =
        *state_;
    first_touches.advance_to(~std::uint64_t{0}, stats.blocks());
    stats.finish();
    const Json analysis = {
        {"process",
         {{"pid", metadata.process.pid},
          {"parent", metadata.process.parent},
          {"program", metadata.program},
          {"rank", metadata.rank},
          {"seconds", metadata.seconds_at(metadata.process.end_ticks)},
          {"complete", metadata.process.end_state != 0},
          {"detached",
           metadata.process.end_state == static_cast<std::uint32_t>(EndState::detached)},
          {"attached_after",
           metadata.attached_after ? Json(*metadata.attached_after) : Json(nullptr)},
          {"at_least", metadata.process.at_least},
          {"sample", metadata.process.sample}}},
        {"trace",
         {{"imported_from", summary.imported_from},
          {"bytes", summary.bytes},
          {"events", stats.events},
          {"lost_events", metadata.process.lost},
          {"damaged_bytes", summary.damaged_bytes},
          {"unreadable_chunks", metadata.unreadable_chunks + summary.unreadable_chunks},
          {"missing_objects", symbols.missing()},
          {"unsupported_python", metadata.python.unsupported_version}}},
        {"totals",
         {{"count", stats.count},
          {"bytes", stats.bytes},
          {"frees", stats.frees},
          {"unknown_frees", stats.unknown_frees},
          {"peak", stats.peak},
          {"peak_count", stats.peak_count},
          {"peak_seconds", stats.peak > 0 ? metadata.seconds_at(stats.peak_time) : 0.0},
          {"leaked", stats.live},
          {"leaked_count", stats.live_count},
          {"mapped", stats.mapped},
          {"mapped_bytes", stats.mapped_bytes}}},
        {"tick", metadata.seconds_per_tick()},
        {"threads", threads_json(metadata, stats)},
        {"timeline", timeline_json(metadata, stats)},
        {"sizes", stats.sizes},
        {"frequent", sizes_json(stats)},
        {"lifetimes", stats.lifetimes},
        {"touches", touches_json(metadata, first_touches, tree, symbols)},
        {"fragmentation", fragmentation_json(metadata, worst_fragmentation.fragmentation)},
        {"globals", globals_json(metadata, find_globals(symbols, metadata.mappings,
                                                        metadata.process.page_bytes))},
        {"tree", tree_json(tree, stats, groups, peaks)},
    };
    const std::string text = analysis.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (std::fwrite(text.data(), 1, text.size(), output) != text.size() ||
        std::fputc('\n', output) == EOF || std::fflush(output) != 0)
        throw Error(std::string("cannot write the analysis: ") + std::strerror(errno),
                    "check for free disk space");
}

void analyse(const std::string& path, std::uint64_t bytes, std::FILE* output) {
    TraceReader trace(path, bytes);
    Symbols symbols;
    const TraceMetadata metadata = read_metadata(trace, symbols);
    Analysis analysis(metadata, symbols);
    EventMerger merger(trace);
    merger.for_each([&](std::uint32_t thread, const Event& event) { analysis.add(thread, event); });
    analysis.write_json({.imported_from = "",
                         .bytes = trace.bytes(),
                         .damaged_bytes = trace.damaged_bytes(),
                         .unreadable_chunks = merger.unreadable_chunks()},
                        output);
}

}  // namespace assay::heap
