// Stacks as a tree of (parent, address) nodes, shared by all threads of the process: a stack is the
// number of its innermost node, and nodes are only ever added.
//
// Finding is lock-free, adding too: a node is filled before its number is published in a slot of an
// open hash table by compare-and-swap. A thread that loses such a race leaves its node unused. The
// address is written last: while it is 0, the node is not yet there.
//
// There are several tables, each larger than the one before, and a node's number says in which it
// is: few nodes lie on few pages, and no page is touched for the sake of one that may come. Where
// two threads find the same new node just when a table is full, it may be there twice: whoever
// reads the tree takes such two for one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace assay::stack {

using StackId = std::uint32_t;

// Roots: node 0 is no stack; a stack whose outermost frames could not be read hangs under `lost`.
inline constexpr StackId no_stack = 0, complete_root = 1, lost_root = 2;
inline constexpr std::uint64_t unused_address = 1;

struct Node {
    StackId parent;
    std::uint64_t
        address;  // within the calling instruction; of an interrupted frame, the instruction itself
};

class Tree {
public:
    // Room for `nodes`, in `storage` (zeroed) where it is given; memory is touched as it fills.
    // False when it cannot be reserved.
    bool reserve(std::size_t nodes, Node* storage = nullptr);
    void release();

    // The node of `address` under `parent`; no_stack when the tree is full.
    StackId child(StackId parent, std::uint64_t address);
    // `addresses` innermost first.
    StackId insert(StackId root, std::span<const std::uint64_t> addresses);

    Node node(StackId id) const { return nodes_[id]; }
    // Nodes below this number have been given out; one of them may still be unpublished.
    StackId size() const { return used_.load(std::memory_order_acquire); }

private:
    // A node's number, and above it a part of its hash: most nodes that are not meant are told by
    // it alone.
    using Slot = std::uint32_t;
    static constexpr unsigned id_bits = 24;
    static constexpr Slot id_mask = (Slot{1} << id_bits) - 1;

    static constexpr unsigned tables = 5, first_bits = 13,
                              bits_more = 3;  // slots, by their logarithm to base 2

    static constexpr std::size_t slots_in(unsigned table) {
        return std::size_t{1} << (first_bits + table * bits_more);
    }
    // The one after the last node of a table: they are half full at most.
    static constexpr StackId end_of(unsigned table) {
        return table + 1 == tables ? ~StackId{0} : static_cast<StackId>(slots_in(table) / 2);
    }
    static constexpr unsigned table_of(StackId id) {
        unsigned table = 0;
        while (id >= end_of(table)) ++table;
        return table;
    }

    Node* nodes_ = nullptr;
    bool owns_nodes_ = false;
    std::atomic<Slot>* slots_[tables] = {};
    std::size_t capacity_ = 0;
    std::atomic<StackId> used_{0};
};

}  // namespace assay::stack
