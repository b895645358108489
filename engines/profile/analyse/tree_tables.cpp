// Computes exclusive and inclusive figures by node, line and function, and packs them into tables.
#include "profile/analyse/tree_tables.hpp"

#include <algorithm>

#include "profile/analyse/pack_column.hpp"

namespace assay::profile {
namespace {

using heap::CallTree;

std::uint64_t neutral_value(Fold fold) { return fold == Fold::least ? unknown_least : 0; }

void fold_value(std::uint64_t& total, std::uint64_t value, Fold fold) {
    if (fold == Fold::sum) total += value;
    else if (fold == Fold::least) total = std::min(total, value);
    else total = std::max(total, value);
}

Column pack(std::vector<std::uint64_t> values, Fold fold, double scale) {
    if (fold == Fold::least) std::ranges::replace(values, unknown_least, 0);
    return scale == 0 ? pack_column(values) : pack_scaled(values, scale);
}

}  // namespace

TreeTables::TreeTables(const CallTree& tree, const std::vector<bool>& is_used)
    : tree_(tree), sites_(tree.allocation_sites()) {
    const auto nodes = static_cast<std::uint32_t>(tree.nodes().size());
    std::vector<std::uint32_t> parents, locations, sites;
    parents.reserve(nodes);
    locations.reserve(nodes);
    for (std::uint32_t node = 0; node < nodes; ++node) {
        parents.push_back(tree.nodes()[node].parent);
        locations.push_back(tree.nodes()[node].location);
        if (!is_used[node]) continue;
        stacks_.push_back(node);
        sites.push_back(sites_[node]);
    }
    tables_.nodes = {nodes, pack_indices(parents), pack_indices(locations), {}};
    tables_.stacks = {stacks_.size(), pack_indices(stacks_), pack_indices(sites), {}};
    Locations& table = tables_.locations;
    for (const CallTree::TreeLocation& entry : tree.locations()) {
        const heap::Location& location = *entry.location;
        table.function.push_back(location.function);
        table.file.push_back(location.file);
        table.line.push_back(static_cast<std::uint64_t>(std::max(0, location.line)));
        table.module.push_back(location.module);
        table.inlined.push_back(location.inlined);
        table.is_allocator_frame.push_back(entry.is_allocator_frame);
        table.function_id.push_back(entry.function_id);
        table.line_id.push_back(entry.line_id);
    }
    make_groups(lines_, tables_.lines, &CallTree::TreeLocation::line_id);
    make_groups(functions_, tables_.functions, &CallTree::TreeLocation::function_id);
}

void TreeTables::make_groups(Grouping& grouping, Groups& groups,
                             std::uint32_t CallTree::TreeLocation::* id) const {
    grouping.row_of_location.resize(tree_.locations().size());
    for (std::uint32_t location = 0; location < tree_.locations().size(); ++location) {
        const std::uint32_t first = tree_.locations()[location].*id;  // at most `location`
        if (first == location) grouping.first.push_back(location);
        grouping.row_of_location[location] =
            first == location ? static_cast<std::uint32_t>(grouping.first.size() - 1)
                              : grouping.row_of_location[first];
    }
    groups.rows = grouping.first.size();
    groups.location = pack_indices(grouping.first);
    find_outermost(grouping);
}

// Marks the nodes that are the outermost call of their group on their stack. Walks the tree
// depth-first and counts the open calls of each group.
void TreeTables::find_outermost(Grouping& grouping) const {
    const auto& nodes = tree_.nodes();
    const auto count = static_cast<std::uint32_t>(nodes.size());
    std::vector<std::uint32_t> first_child(count + 1, CallTree::none),
        next_sibling(count, CallTree::none);
    for (std::uint32_t node = count; node-- > 0;) {
        const std::uint32_t parent =
            nodes[node].parent == CallTree::none ? count : nodes[node].parent;
        next_sibling[node] = first_child[parent];
        first_child[parent] = node;
    }
    grouping.is_outermost.assign(count, false);
    std::vector<std::uint32_t> calls(grouping.first.size()), path;
    for (std::uint32_t node = first_child[count]; node != CallTree::none || !path.empty();) {
        if (node == CallTree::none) {
            node = path.back();
            path.pop_back();
            --calls[grouping.row_of_location[nodes[node].location]];
            node = next_sibling[node];
            continue;
        }
        grouping.is_outermost[node] = calls[grouping.row_of_location[nodes[node].location]]++ == 0;
        path.push_back(node);
        node = first_child[node];
    }
}

void TreeTables::add(const std::string& name, const std::vector<std::uint64_t>& values, Fold fold,
                     double scale, const Peak& peak) {
    std::vector<std::uint64_t> exclusive_sums;
    exclusive_sums.reserve(stacks_.size());
    for (const std::uint32_t node : stacks_) exclusive_sums.push_back(values[node]);
    tables_.stacks.figures[name] = pack(std::move(exclusive_sums), fold, scale);
    if (fold == Fold::peak) {
        add_peaks(name, values, peak);
        return;
    }
    std::vector<std::uint64_t> totals = values;
    for (std::size_t node = totals.size(); node-- > 0;)
        if (const std::uint32_t parent = tree_.nodes()[node].parent; parent != CallTree::none)
            fold_value(totals[parent], totals[node], fold);
    add_groups(lines_, tables_.lines, name, values, totals, fold, scale);
    add_groups(functions_, tables_.functions, name, values, totals, fold, scale);
    tables_.nodes.figures[name] = pack(std::move(totals), fold, scale);
}

void TreeTables::add_groups(const Grouping& grouping, Groups& groups, const std::string& name,
                            const std::vector<std::uint64_t>& values,
                            const std::vector<std::uint64_t>& totals, Fold fold,
                            double scale) const {
    std::vector<std::uint64_t> exclusive(grouping.first.size(), neutral_value(fold));
    std::vector<std::uint64_t> inclusive = exclusive;
    for (const std::uint32_t node : stacks_)
        fold_value(exclusive[grouping.row_of_location[sites_[node]]], values[node], fold);
    for (std::uint32_t node = 0; node < totals.size(); ++node)
        if (grouping.is_outermost[node])
            fold_value(inclusive[grouping.row_of_location[tree_.nodes()[node].location]],
                       totals[node], fold);
    groups.exclusive[name] = pack(std::move(exclusive), fold, scale);
    groups.inclusive[name] = pack(std::move(inclusive), fold, scale);
}

void TreeTables::add_peaks(const std::string& name, const std::vector<std::uint64_t>& values,
                           const Peak& peak) {
    const auto column = [&](Table table, std::size_t rows,
                            const std::vector<std::uint32_t>* first) {
        std::vector<std::uint64_t> peaks;
        peaks.reserve(rows);
        for (std::uint32_t row = 0; row < rows; ++row)
            peaks.push_back(peak(table, first == nullptr ? row : (*first)[row]));
        return pack_column(peaks);
    };
    tables_.nodes.figures[name] = column(Table::nodes, values.size(), nullptr);
    for (const auto& [grouping, groups, exclusive, inclusive] :
         {std::tuple(&lines_, &tables_.lines, Table::lines_exclusive, Table::lines_inclusive),
          std::tuple(&functions_, &tables_.functions, Table::functions_exclusive,
                     Table::functions_inclusive)}) {
        groups->exclusive[name] = column(exclusive, grouping->first.size(), &grouping->first);
        groups->inclusive[name] = column(inclusive, grouping->first.size(), &grouping->first);
    }
}

}  // namespace assay::profile
