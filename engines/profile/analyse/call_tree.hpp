// The call tree by function and line. Stacks that differ only in addresses within a line share a
// node.
//
// Python frames are inserted between the interpreter's C frame that runs them and the C functions
// that they call.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profile/analyse/python_metadata.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"

namespace assay::heap {

// Whether a function allocates on behalf of its caller: allocation functions of C, C++ and glib,
// and the C++ standard library.
bool is_allocator_function(const std::string& function);

class CallTree {
public:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Node {
        std::uint32_t parent;    // none for an outermost node
        std::uint32_t location;  // index into locations()
    };
    struct TreeLocation {
        const Location* location;
        // The first location with this function name and object, which identifies the function.
        std::uint32_t function_id;
        // The first location on this line of this file; without a file, that of the function.
        std::uint32_t line_id;
        bool is_allocator_frame;  // its allocations are attributed to its caller
    };

    // Resolves all stacks; takes as long as reading the objects' debug information.
    CallTree(const std::vector<stack::Node>& stacks, const PythonMetadata& python,
             Symbols& symbols);

    // The node of a stack. Unreadable stacks share the node "(unknown callers)".
    std::uint32_t node_of(std::uint32_t stack) const {
        return stack < node_of_stack_.size() && node_of_stack_[stack] != none
                   ? node_of_stack_[stack]
                   : unknown_node_;
    }
    // By node: the innermost location on its stack that is no allocator frame; if there is none,
    // the node's own location.
    std::vector<std::uint32_t> allocation_sites() const;

    const std::vector<Node>& nodes() const { return nodes_; }  // parents come before children
    const std::vector<TreeLocation>& locations() const { return locations_; }

private:
    std::uint32_t resolve_stack(stack::StackId stack);
    std::uint32_t resolve_caller(stack::StackId parent) {
        return parent == stack::complete_root ? none : resolve_stack(parent);
    }
    bool is_call(stack::StackId stack) const;
    std::uint32_t resolve_root(stack::StackId stack);
    std::uint32_t join_stacks(stack::StackId native, stack::StackId frames);
    std::uint32_t append(std::uint32_t node, const std::vector<Location>& locations);
    std::uint32_t append_frames(std::uint32_t node, const std::vector<stack::StackId>& frames);
    std::vector<stack::StackId> remove_frames(stack::StackId& frames, bool take_all) const;
    bool is_python_frame(stack::StackId id) const;
    bool runs_python(std::uint64_t address);
    bool is_allocator_frame(const Location& location) const;
    std::uint32_t child(std::uint32_t parent, std::uint32_t location);
    std::uint32_t location_number(const Location& location, bool is_python = false);

    const std::vector<stack::Node>& stacks_;
    const PythonMetadata& python_;
    Symbols& symbols_;
    std::unordered_set<std::string> interpreters_;  // paths of objects
    std::vector<std::uint32_t> node_of_stack_;      // none: not resolved yet
    // Node by C stack (upper 32 bits) and Python stack.
    std::unordered_map<std::uint64_t, std::uint32_t> joined_nodes_;
    std::uint32_t unknown_node_ = 0;
    std::vector<Node> nodes_;
    std::vector<TreeLocation> locations_;
    std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node by parent + 1 and location
    std::unordered_map<std::string, std::uint32_t> number_of_location_, number_of_function_,
        number_of_line_;
    std::unordered_map<const Location*, std::uint32_t> location_numbers_;
};

}  // namespace assay::heap
