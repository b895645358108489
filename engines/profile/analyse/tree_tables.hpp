// The tables of a profile (records/profile.py: Tree): figures by node, stack, line and function.
//
// Inclusive figures are folded from the leaves to the roots, once for each column; a recursive
// function or line counts at its outermost call of each stack alone. So the time does not depend on
// how deep stacks are.
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

// The tables, for columns whose rows have a peak over time.
enum class Table {
    nodes,
    lines_exclusive,
    lines_inclusive,
    functions_exclusive,
    functions_inclusive
};

class TreeTables {
public:
    // `is_used`, by node: the stack that ends there did something itself.
    TreeTables(const heap::CallTree& tree, const std::vector<bool>& is_used);

    // Adds a column from its figures by node. `scale`: 0 for a count or an amount, else the factor
    // from ticks to seconds. `peak`: a row's peak, by node or by the first location of a line or
    // function; of a column with Fold::peak alone.
    using Peak = std::function<std::uint64_t(Table, std::uint32_t)>;
    void add(const std::string& name, const std::vector<std::uint64_t>& values, Fold fold,
             double scale, const Peak& peak);
    Tree take() { return std::move(tables_); }

private:
    struct Grouping {
        std::vector<std::uint32_t> row_of_location;
        std::vector<std::uint32_t> first;  // location by row
        std::vector<bool> is_outermost;    // by node
    };

    void group(Grouping& grouping, Groups& groups,
               std::uint32_t heap::CallTree::TreeLocation::* id) const;
    void find_outermost(Grouping& grouping) const;
    void add_groups(const Grouping& grouping, Groups& groups, const std::string& name,
                    const std::vector<std::uint64_t>& values,
                    const std::vector<std::uint64_t>& totals, Fold fold, double scale) const;
    void add_peaks(const std::string& name, const std::vector<std::uint64_t>& values,
                   const Peak& peak);

    const heap::CallTree& tree_;
    std::vector<std::uint32_t> sites_, stacks_;  // by node; nodes of the stacks
    Grouping lines_, functions_;
    Tree tables_;
};

// Adds all columns of a profiler. `figures`: a function from a node to its figures.
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
