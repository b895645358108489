// The tree of stacks by function and line: what differs in its addresses alone is one.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"

namespace assay::heap {

class CallTree {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Node {
        std::uint32_t parent, place;  // parent: none of an outermost one
    };
    struct Line {
        const Place* place;
        std::uint32_t function;  // the first of its places: those of one name and object are one function
        bool hands_on;           // it only passes requests on: what it asks for, its caller has asked for
    };

    // Looks all of them up, which takes as long as reading the objects' debug information takes.
    CallTree(const std::vector<stack::Node>& stacks, Symbols& symbols);

    // Of a stack; those that could not be read hang under a node of their own.
    std::uint32_t node_of(std::uint32_t stack) const { return stack < at_.size() ? at_[stack] : unknown_; }
    // Who is to be told: the place of the innermost that does not merely hand requests on.
    std::uint32_t asker(std::uint32_t node) const;

    const std::vector<Node>& nodes() const { return nodes_; }  // parents come before children
    const std::vector<Line>& places() const { return places_; }

private:
    void add(const stack::Node& node, Symbols& symbols);  // the next stack
    std::uint32_t child(std::uint32_t parent, std::uint32_t place);
    std::uint32_t place_of(const Place& place);

    std::vector<std::uint32_t> at_;  // by stack
    std::uint32_t unknown_ = 0;
    std::vector<Node> nodes_;
    std::vector<Line> places_;
    std::unordered_map<std::uint64_t, std::uint32_t> children_;
    std::unordered_map<std::string, std::uint32_t> place_numbers_, functions_;
};

}  // namespace assay::heap
