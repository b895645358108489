// The tree of stacks by function and line: what differs in its addresses alone is one.
//
// Python's functions stand where they run: further in than the interpreter's C frame that runs
// them, and further out than what they call.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profile/analyse/python.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"

namespace assay::heap {

// Allocation functions of C, C++ and glib, and the standard library, which asks for its user.
bool only_hands_on(const std::string& function);

class CallTree {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Node {
        std::uint32_t parent, place;  // parent: none of an outermost one
    };
    struct Line {
        const Place* place;
        std::uint32_t
            function;   // the first of its places: those of one name and object are one function
        bool hands_on;  // it only passes requests on: what it asks for, its caller has asked for
    };

    // Looks all of them up, which takes as long as reading the objects' debug information takes.
    CallTree(const std::vector<stack::Node>& stacks, const Python& python, Symbols& symbols);

    // Of a stack; those that could not be read hang under a node of their own.
    std::uint32_t node_of(std::uint32_t stack) const {
        return stack < at_.size() && at_[stack] != none ? at_[stack] : unknown_;
    }
    // Who is to be told: the place of the innermost that does not merely hand requests on.
    std::uint32_t asker(std::uint32_t node) const;

    const std::vector<Node>& nodes() const { return nodes_; }  // parents come before children
    const std::vector<Line>& places() const { return places_; }

private:
    std::uint32_t find(stack::StackId stack);
    std::uint32_t outside(stack::StackId parent) {
        return parent == stack::complete_root ? none : find(parent);
    }
    std::uint32_t joined(stack::StackId native, stack::StackId frames);
    std::uint32_t append(std::uint32_t at, const std::vector<Place>& places);
    std::uint32_t append_frames(std::uint32_t at, const std::vector<stack::StackId>& frames);
    std::vector<stack::StackId> take_frames(stack::StackId& frames, bool all) const;
    bool is_frame(stack::StackId id) const;
    bool runs_python(std::uint64_t address);
    bool hands_on(const Place& place) const;
    std::uint32_t child(std::uint32_t parent, std::uint32_t place);
    std::uint32_t place_of(const Place& place, bool is_python = false);

    const std::vector<stack::Node>& stacks_;
    const Python& python_;
    Symbols& symbols_;
    std::unordered_set<std::string> interpreters_;  // objects
    std::vector<std::uint32_t> at_;                 // by stack; none: not looked up yet
    std::unordered_map<std::uint64_t, std::uint32_t>
        joined_;  // by the numbers of the C stack and the Python stack
    std::uint32_t unknown_ = 0;
    std::vector<Node> nodes_;
    std::vector<Line> places_;
    std::unordered_map<std::uint64_t, std::uint32_t> children_;
    std::unordered_map<std::string, std::uint32_t> place_numbers_, functions_;
    std::unordered_map<const Place*, std::uint32_t> known_places_;
};

}  // namespace assay::heap
