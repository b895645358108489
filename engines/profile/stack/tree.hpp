// Stores call stacks as a tree of (parent, address) nodes, shared by all threads of the process.
// The number of its innermost node identifies a stack. Nodes are only added, never removed.
//
// Lookup and insertion are lock-free. A node is filled first; then compare-and-swap publishes its
// number in a slot of an open-addressing hash table. A thread that loses such a race leaves its
// node unused. The address is written last: while it is 0, the node is not valid yet.
//
// The children of a node also form a linked list, newest first. A lookup follows only its first few
// links. A recursion visits nodes in the order of their creation, so the links access memory
// sequentially, whereas the hash tables access it at random.
//
// There are several tables, each larger than the one before. A node's number determines its table,
// so few nodes touch few pages. When two threads insert the same node just as a table fills up, it
// may exist twice; readers of the tree treat two such nodes as the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace assay::stack {

using StackId = std::uint32_t;

// Roots. Node 0 stands for the absence of a stack. A stack whose outermost frames could not be read
// is a descendant of lost_root.
inline constexpr StackId no_stack = 0, complete_root = 1, lost_root = 2;
inline constexpr std::uint64_t unused_address = 1;

struct Node {
    StackId parent;
    std::uint64_t address;  // within the calling instruction; the instruction itself if interrupted
};

class Tree {
public:
    // Makes memory accessible. Returns false if there is none.
    using Populate = bool (*)(void* address, std::size_t bytes);

    // Reserves `nodes` nodes, in `storage` (zeroed) if it is given. Memory is touched as the
    // tree grows, after `populate` has returned true for it. Returns false without memory.
    bool reserve(std::size_t nodes, Node* storage = nullptr, Populate populate = nullptr);
    void release();

    // The node of `address` under `parent` if it is linked, else no_stack.
    StackId linked_child(StackId parent, std::uint64_t address) const {
        if (parent >= link_count) return no_stack;
        StackId id = links_[parent].first_child.load(std::memory_order_acquire);
        for (unsigned hop = 0; id != no_stack && hop < max_hops; ++hop) {
            if (nodes_[id].address == address) return id;
            id = links_[id].next.load(std::memory_order_relaxed);
        }
        return no_stack;
    }
    // The node of `address` under `parent`, added if it is new; no_stack when the tree is full.
    StackId child(StackId parent, std::uint64_t address);
    // Inserts the stack of `addresses`, innermost first. Returns no_stack if the tree is full.
    StackId insert(StackId root, std::span<const std::uint64_t> addresses);

    Node node(StackId id) const { return nodes_[id]; }
    // One more than the highest node number in use; the last nodes may not be published yet.
    StackId size() const { return used_.load(std::memory_order_acquire); }

private:
    // The node's number in the low bits, a part of its hash above, so that most mismatches are
    // detected without loading the node.
    using Slot = std::uint32_t;
    static constexpr unsigned id_bits = 24;
    static constexpr Slot id_mask = (Slot{1} << id_bits) - 1;

    // Table k has 2^(first_bits + k * table_bits) slots.
    static constexpr unsigned tables = 5, first_bits = 13, table_bits = 3;

    static constexpr std::size_t slots_in(unsigned table) {
        return std::size_t{1} << (first_bits + table * table_bits);
    }
    // One more than the last node of a table: a table is at most half full.
    static constexpr StackId end_of(unsigned table) {
        return table + 1 == tables ? ~StackId{0} : static_cast<StackId>(slots_in(table) / 2);
    }
    static constexpr unsigned table_of(StackId id) {
        unsigned table = 0;
        while (id >= end_of(table)) ++table;
        return table;
    }

    struct Link {
        std::atomic<StackId> first_child, next;  // next: of the same parent
    };
    static constexpr StackId link_count = 1 << 22;  // later nodes have no links
    static constexpr unsigned max_hops = 4;
    void link(StackId parent, StackId id);

    // Makes the memory of node `id` and of all nodes before it accessible.
    bool make_ready(StackId id);

    static constexpr StackId nodes_per_step = 4096;  // 64 KiB

    Node* nodes_ = nullptr;
    Link* links_ = nullptr;
    bool owns_nodes_ = false;
    Populate populate_ = nullptr;
    std::atomic<StackId> ready_{0};  // nodes that may be touched
    std::atomic<Slot>* slots_[tables] = {};
    std::atomic<std::size_t> capacity_{0};
    std::atomic<StackId> used_{0};
};

}  // namespace assay::stack
