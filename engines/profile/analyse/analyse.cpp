// Runs the analysis of a heap trace and writes the profile as JSON.
#include "profile/analyse/analyse.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/error.hpp"
#include "profile/analyse/allocation_stats.hpp"
#include "profile/analyse/call_tree.hpp"
#include "profile/analyse/runtime_pools.hpp"
#include "profile/analyse/sections.hpp"
#include "profile/analyse/tree_tables.hpp"
#include "profile/trace/event_merger.hpp"

namespace assay::heap {
namespace {

using Json = nlohmann::ordered_json;
using profile::Table;

constexpr std::size_t timeline_steps = 500;

// Numbers the groups of stacks for GroupPeaks: the subtree of each node, and the exclusive and the
// inclusive allocations of each line and each function.
class PeakGroups {
public:
    explicit PeakGroups(const CallTree& tree)
        : tree_(tree),
          sites_(tree.allocation_sites()),
          node_count_(tree.nodes().size()),
          location_count_(tree.locations().size()) {}
    std::size_t count() const { return node_count_ + 4 * location_count_; }
    std::vector<std::uint32_t> groups_of_node(std::uint32_t node) const {
        std::set<std::uint32_t> groups;
        for (std::uint32_t ancestor = node; ancestor != CallTree::none;
             ancestor = tree_.nodes()[ancestor].parent) {
            const auto& location = tree_.locations()[tree_.nodes()[ancestor].location];
            groups.insert({number(Table::nodes, ancestor),
                           number(Table::lines_inclusive, location.line_id),
                           number(Table::functions_inclusive, location.function_id)});
        }
        const auto& site = tree_.locations()[sites_[node]];
        groups.insert({number(Table::lines_exclusive, site.line_id),
                       number(Table::functions_exclusive, site.function_id)});
        return {groups.begin(), groups.end()};
    }
    // `row`: a node, or the first location of a line or function.
    std::uint32_t number(Table table, std::uint32_t row) const {
        if (table == Table::nodes) return row;
        const std::size_t previous_tables = static_cast<std::size_t>(table) - 1;
        return static_cast<std::uint32_t>(node_count_ + previous_tables * location_count_ + row);
    }

private:
    const CallTree& tree_;
    std::vector<std::uint32_t> sites_;
    std::size_t node_count_, location_count_;
};

// Measures fragmentation at the time when resident memory exceeds the live bytes most. Pages of
// files and of shared memory are excluded, since they do not belong to an allocator.
class WorstFragmentation {
public:
    explicit WorstFragmentation(const TraceMetadata& metadata)
        : metadata_(metadata), page_bytes_(metadata.process.page_bytes) {}
    void advance_to(std::uint64_t time, const AllocationStats& stats) {
        for (; next_ < metadata_.samples.size() && metadata_.samples[next_].time <= time; ++next_) {
            const MemorySample& sample = metadata_.samples[next_];
            const std::uint64_t resident = static_cast<std::uint64_t>(std::max<std::int64_t>(
                                               0, sample.resident_pages - sample.shared_pages)) *
                                           page_bytes_;
            const std::uint64_t unused_bytes = resident - std::min(resident, stats.live);
            if (unused_bytes <= min_unused_bytes ||
                static_cast<double>(unused_bytes) <
                    min_growth * static_cast<double>(max_unused_bytes_))
                continue;
            max_unused_bytes_ = unused_bytes;
            fragmentation = measure_fragmentation(stats.blocks(), page_bytes_);
            fragmentation.time = sample.time;
            fragmentation.resident = resident;
        }
    }

    Fragmentation fragmentation;

private:
    // Growth of the unused bytes since the last measurement. Limits the number of measurements.
    static constexpr double min_growth = 1.25;
    static constexpr std::uint64_t min_unused_bytes = 1 << 20;  // bytes

    const TraceMetadata& metadata_;
    std::uint64_t page_bytes_, max_unused_bytes_ = 0;
    std::size_t next_ = 0;
};

profile::Tree make_tree_section(const CallTree& tree, const AllocationStats& stats,
                                const PeakGroups& groups, const GroupPeaks& peaks,
                                double seconds_per_tick) {
    std::vector<bool> is_used;
    is_used.reserve(tree.nodes().size());
    for (std::uint32_t node = 0; node < tree.nodes().size(); ++node)
        is_used.push_back(stats.stacks[node].is_used());
    profile::TreeTables tables(tree, is_used);
    profile::add_columns(
        tables, heap_columns, tree.nodes().size(),
        [&](std::uint32_t node) -> const HeapFigures& { return stats.stacks[node]; },
        seconds_per_tick,
        [&](Table table, std::uint32_t row) { return peaks.peak(groups.number(table, row)); });
    return tables.move_tree();
}

}  // namespace

// The members are constructed in the order of declaration.
struct Analysis::State {
    State(const TraceMetadata& trace_metadata, Symbols& trace_symbols)
        : metadata(trace_metadata),
          symbols(trace_symbols),
          tree(metadata.nodes, metadata.python, symbols),
          groups(tree),
          peaks(groups.count(), [this](std::uint32_t node) { return groups.groups_of_node(node); }),
          stats(metadata.first_event > metadata.last_event ? 0 : metadata.first_event,
                metadata.first_event > metadata.last_event ? 0 : metadata.last_event,
                timeline_steps, tree.nodes().size(), &peaks, metadata.process.sample_bytes),
          worst_fragmentation(metadata),
          first_touches(metadata) {}

    const TraceMetadata& metadata;
    Symbols& symbols;
    CallTree tree;
    PeakGroups groups;
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
    // In an attached process, pages that seem empty may hold blocks from before the attachment.
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
    std::vector<HeapPool> pools = separate_runtime_pools(tree, stats);
    std::vector<std::uint32_t> lines, functions;  // of the allocation sites, by node
    for (const std::uint32_t site : tree.allocation_sites()) {
        lines.push_back(tree.locations()[site].line_id);
        functions.push_back(tree.locations()[site].function_id);
    }
    const double tick = metadata.seconds_per_tick();
    HeapProfile result{
        .process = make_process_section(metadata),
        .trace = {.imported_from = summary.imported_from,
                  .bytes = summary.bytes,
                  .events = stats.events,
                  .lost_events = metadata.process.lost,
                  .damaged_bytes = summary.damaged_bytes,
                  .unreadable_chunks = metadata.unreadable_chunks + summary.unreadable_chunks,
                  .missing_objects = symbols.missing(),
                  .unsupported_python = metadata.python.unsupported_version,
                  .cut_off = summary.cut_off,
                  .lost_faults = metadata.lost_page_faults,
                  .unrecorded = metadata.unrecorded},
        .totals = make_totals_section(metadata, stats),
        .pools = std::move(pools),
        .tick = tick,
        .threads = make_threads_section(metadata, stats, lines),
        .timeline = make_timeline_section(metadata, stats),
        .sizes = {stats.sizes.begin(), stats.sizes.end()},
        .frequent_size = {},
        .frequent_count = {},
        .lifetimes = {},
        .touches = make_touches_section(metadata, first_touches, tree, lines, symbols),
        .fragmentation =
            make_fragmentation_section(metadata, worst_fragmentation.fragmentation, lines),
        .objects = {},
        .variables = {},
        .histograms = make_histograms_section(stats, functions),
        .tree = make_tree_section(tree, stats, groups, peaks, tick)};
    for (const auto& row : stats.lifetimes) result.lifetimes.emplace_back(row.begin(), row.end());
    add_frequent_sizes(result, stats);
    add_globals(result, find_globals(symbols, metadata.mappings, metadata.process.page_bytes));
    const Json analysis = result;
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
                         .unreadable_chunks = merger.unreadable_chunks(),
                         .cut_off = false},
                        output);
}

}  // namespace assay::heap
