// Tables of a call tree, compared with a straightforward computation on random trees.
#include "profile/analyse/tree_tables.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "profile/analyse/heap_schema.hpp"
#include "profile/analyse/pack_column.hpp"

using namespace assay;
using namespace assay::heap;

namespace {

constexpr std::uint64_t first_address = 0x1000;
constexpr stack::StackId first_stack = stack::lost_root + 1;

std::vector<std::uint8_t> unbase64(const std::string& text) {
    static const std::string digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::vector<std::uint8_t> bytes;
    std::uint32_t group = 0;
    int bits = 0;
    for (const char c : text) {
        if (c == '=') break;
        group = group << 6 | static_cast<std::uint32_t>(digits.find(c));
        bits += 6;
        if (bits >= 8) bytes.push_back(static_cast<std::uint8_t>(group >> (bits -= 8)));
    }
    return bytes;
}

template <typename T>
std::vector<double> as_numbers(const std::vector<std::uint8_t>& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return {values.begin(), values.end()};
}

std::vector<double> unpacked(const profile::Column& column, std::size_t rows) {
    const std::vector<std::uint8_t> bytes = unbase64(column.data);
    if (column.type == "zero") return std::vector<double>(rows);
    if (column.type == "u1") return as_numbers<std::uint8_t>(bytes);
    if (column.type == "u2") return as_numbers<std::uint16_t>(bytes);
    if (column.type == "u4") return as_numbers<std::uint32_t>(bytes);
    if (column.type == "i4") return as_numbers<std::int32_t>(bytes);
    return column.type == "f4" ? as_numbers<float>(bytes) : as_numbers<double>(bytes);
}

// A tree of stacks through functions "f0", "f1" ... of two lines each; "malloc" is an allocator's.
struct RandomTree {
    Symbols symbols;
    PythonMetadata python;
    std::vector<stack::Node> stacks = std::vector<stack::Node>(first_stack);

    explicit RandomTree(std::mt19937_64& random) {
        constexpr std::uint64_t functions = 6, lines = 2;
        for (std::uint64_t k = 0; k < functions * lines; ++k) {
            const std::string name = k / lines == 0 ? "malloc" : "f" + std::to_string(k / lines);
            symbols.set_locations(first_address + k,
                                  {{name, "/a.c", static_cast<int>(k), "/a", false}});
        }
        for (int k = 0; k < 60; ++k)
            stacks.push_back({stacks.size() == first_stack || random() % 8 == 0
                                  ? stack::complete_root
                                  : static_cast<stack::StackId>(
                                        first_stack + random() % (stacks.size() - first_stack)),
                              first_address + random() % (functions * lines)});
    }
};

// A column by the first location of each group, from the definition: every stack counts once for
// each group that is on it, or for its site's alone.
std::map<std::uint32_t, double> expected(const CallTree& tree,
                                         const std::vector<std::uint64_t>& values,
                                         profile::Fold fold, bool is_inclusive,
                                         std::uint32_t CallTree::TreeLocation::* id) {
    std::map<std::uint32_t, double> groups;
    const std::vector<std::uint32_t> sites = tree.allocation_sites();
    for (std::uint32_t node = 0; node < values.size(); ++node) {
        if (values[node] == 0 || values[node] == profile::unknown_least) continue;
        std::set<std::uint32_t> reached;
        if (is_inclusive)
            for (std::uint32_t k = node; k != CallTree::none; k = tree.nodes()[k].parent)
                reached.insert(tree.locations()[tree.nodes()[k].location].*id);
        else reached.insert(tree.locations()[sites[node]].*id);
        for (const std::uint32_t group : reached) {
            const auto value = static_cast<double>(values[node]);
            const auto [entry, is_new] = groups.try_emplace(group, value);
            if (is_new) continue;
            if (fold == profile::Fold::sum) entry->second += value;
            else if (fold == profile::Fold::least) entry->second = std::min(entry->second, value);
            else entry->second = std::max(entry->second, value);
        }
    }
    return groups;
}

void check_groups(const profile::Groups& groups, const std::map<std::string, profile::Column>& from,
                  const std::map<std::uint32_t, double>& truth) {
    const std::vector<double> locations = unpacked(groups.location, groups.rows);
    const std::vector<double> values = unpacked(from.at("figure"), groups.rows);
    REQUIRE(values.size() == groups.rows);
    for (std::size_t row = 0; row < groups.rows; ++row) {
        const auto known = truth.find(static_cast<std::uint32_t>(locations[row]));
        CHECK(values[row] == (known == truth.end() ? 0 : known->second));
    }
}

}  // namespace

TEST_CASE("figures by line and by function, with and without callees, of random trees") {
    std::mt19937_64 random(5);
    for (int round = 0; round < 30; ++round) {
        RandomTree planted(random);
        const CallTree tree(planted.stacks, planted.python, planted.symbols);
        for (const profile::Fold fold :
             {profile::Fold::sum, profile::Fold::least, profile::Fold::most}) {
            std::vector<bool> is_used;
            std::vector<std::uint64_t> values;
            for (std::size_t node = 0; node < tree.nodes().size(); ++node) {
                is_used.push_back(random() % 3 == 0);
                values.push_back(is_used.back()                 ? 1 + random() % 1000
                                 : fold == profile::Fold::least ? profile::unknown_least
                                                                : 0);
            }
            profile::TreeTables tables(tree, is_used);
            tables.add("figure", values, fold, 0, {});
            const profile::Tree tables_of_tree = tables.move_tree();
            for (const auto& [groups, id] :
                 {std::pair(&tables_of_tree.lines, &CallTree::TreeLocation::line_id),
                  std::pair(&tables_of_tree.functions, &CallTree::TreeLocation::function_id)}) {
                check_groups(*groups, groups->exclusive, expected(tree, values, fold, false, id));
                check_groups(*groups, groups->inclusive, expected(tree, values, fold, true, id));
            }
            CHECK(tables_of_tree.stacks.rows ==
                  static_cast<std::uint64_t>(std::ranges::count(is_used, true)));
        }
    }
}

TEST_CASE("the figure of a node is that of all stacks through it") {
    std::mt19937_64 random(6);
    RandomTree planted(random);
    const CallTree tree(planted.stacks, planted.python, planted.symbols);
    std::vector<std::uint64_t> values(tree.nodes().size()), sums(tree.nodes().size());
    for (std::uint32_t node = 0; node < values.size(); ++node) {
        values[node] = random() % 100;
        for (std::uint32_t k = node; k != CallTree::none; k = tree.nodes()[k].parent)
            sums[k] += values[node];
    }
    profile::TreeTables tables(tree, std::vector<bool>(values.size(), true));
    tables.add("figure", values, profile::Fold::sum, 0, {});
    const std::vector<double> figures =
        unpacked(tables.move_tree().nodes.figures.at("figure"), values.size());
    CHECK(std::ranges::equal(figures, sums, {}, {},
                             [](std::uint64_t sum) { return static_cast<double>(sum); }));
}

TEST_CASE("every column of the definition is written, and no other") {
    std::mt19937_64 random(7);
    RandomTree planted(random);
    const CallTree tree(planted.stacks, planted.python, planted.symbols);
    profile::TreeTables tables(tree, std::vector<bool>(tree.nodes().size(), true));
    const HeapFigures figures;
    profile::add_columns(
        tables, heap_columns, tree.nodes().size(),
        [&](std::uint32_t) -> const HeapFigures& { return figures; }, 1e-9,
        [](profile::Table, std::uint32_t) { return std::uint64_t{3}; });
    const profile::Tree tables_of_tree = tables.move_tree();
    CHECK(tables_of_tree.stacks.figures.size() == std::size(heap_columns));
    CHECK(tables_of_tree.nodes.figures.size() == std::size(heap_columns));
    CHECK(tables_of_tree.lines.inclusive.size() == std::size(heap_columns));
    CHECK(unpacked(tables_of_tree.functions.exclusive.at("peak"), tables_of_tree.functions.rows)
              .front() == 3);
    CHECK(tables_of_tree.nodes.figures.at("min_size").type ==
          "zero");  // an unknown least stands as 0
}

TEST_CASE("columns take the narrowest type that holds them exactly") {
    using Values = std::vector<std::uint64_t>;
    for (const auto& [values, type] :
         {std::pair(Values{0, 0}, "zero"), std::pair(Values{255, 0}, "u1"),
          std::pair(Values{256, 0}, "u2"), std::pair(Values{1, 1 << 16}, "u4"),
          std::pair(Values{1ull << 32, 3}, "f8"), std::pair(Values{}, "zero")}) {
        const profile::Column column = profile::pack_column(values);
        CHECK(column.type == type);
        CHECK(unpacked(column, values.size()) == std::vector<double>(values.begin(), values.end()));
    }
    const std::vector<std::uint32_t> indices = {CallTree::none, 0, 7};
    CHECK(unpacked(profile::pack_indices(indices), 3) == std::vector<double>{-1, 0, 7});
    const Values ticks = {0, 4};
    CHECK(unpacked(profile::pack_scaled(ticks, 0.25), 2) == std::vector<double>{0, 1});
}

TEST_CASE("base64 of the test vectors of RFC 4648") {
    const auto encoded = [](const std::string& text) {
        return profile::base64({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    };
    CHECK(encoded("") == "");
    CHECK(encoded("f") == "Zg==");
    CHECK(encoded("fo") == "Zm8=");
    CHECK(encoded("foo") == "Zm9v");
    CHECK(encoded("foobar") == "Zm9vYmFy");
}
