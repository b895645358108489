// Builds the tables of a profile (records/profile.py: Tree): figures by node, stack, line and
// function.
//
// Inclusive figures are folded from the leaves to the roots, once for each column. A recursive
// function or line counts only at its outermost call of each stack. The run time is therefore
// independent of the depth of stacks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "profile/analyse/call_tree.hpp"
#include "profile/analyse/figure_columns.hpp"
#include "profile/analyse/profile_schema.hpp"

namespace assay::profile {

// The tables whose rows have peaks over time.
enum class Table {
    nodes,
    lines_exclusive,
    lines_inclusive,
    functions_exclusive,
    functions_inclusive
};

class TreeTables {
public:
    // `is_used`, by node: whether the stack that ends at the node has figures of its own.
    TreeTables(const heap::CallTree& tree, const std::vector<bool>& is_used);

    // Adds a column from its figures by node. `scale`: 0 for a count or a size, else the factor
    // from ticks to seconds. `peak`: returns the peak of a row, by node or by the first location of
    // a line or function; used with Fold::peak only.
    using Peak = std::function<std::uint64_t(Table, std::uint32_t)>;
    void add(const std::string& name, const std::vector<std::uint64_t>& values, Fold fold,
             double scale, const Peak& peak);
    Tree move_tree() { return std::move(tables_); }

private:
    struct Grouping {
        std::vector<std::uint32_t> row_of_location;
        std::vector<std::uint32_t> first;  // location by row
        std::vector<bool> is_outermost;    // by node
    };

    void make_groups(Grouping& grouping, Groups& groups,
                     std::uint32_t heap::CallTree::TreeLocation::* id) const;
    void find_outermost(Grouping& grouping) const;
    void add_groups(const Grouping& grouping, Groups& groups, const std::string& name,
                    const std::vector<std::uint64_t>& values,
                    const std::vector<std::uint64_t>& totals, Fold fold, double scale) const;
    void add_peaks(const std::string& name, const std::vector<std::uint64_t>& values,
                   const Peak& peak);

    const heap::CallTree& tree_;
    std::vector<std::uint32_t> sites_, stacks_;  // sites_: by node; stacks_: the used nodes
    Grouping lines_, functions_;
    Tree tables_;
};

// Adds all columns of a profiler. `figures(node)` returns the figures of a node.
template <typename Figures, std::size_t count, typename OfNode>
void add_columns(TreeTables& tables, const FigureColumn<Figures> (&columns)[count],
                 std::size_t nodes, const OfNode& figures, double seconds_per_tick,
                 const TreeTables::Peak& peak) {
    std::vector<std::uint64_t> values(nodes);
    for (const FigureColumn<Figures>& column : columns) {
        for (std::uint32_t node = 0; node < nodes; ++node)
            values[node] = figures(node).*column.value;
        tables.add(column.name, values, column.fold, column.is_time ? seconds_per_tick : 0, peak);
    }
}

}  // namespace assay::profile
