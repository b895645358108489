// The stack tree: nodes, hash tables and sibling links, all lock-free.
#include "profile/stack/tree.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace assay::stack {
namespace {

void* map_memory(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

// Multipliers: the golden ratio in 64 bits (Fibonacci hashing), and SplitMix64's first.
std::uint64_t mix(StackId parent, std::uint64_t address) {
    std::uint64_t h = (address ^ (std::uint64_t{parent} << 40) ^ parent) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
    return h * 0xbf58476d1ce4e5b9ull >> 16;
}

}  // namespace

bool Tree::reserve(std::size_t nodes, Node* storage, Populate populate) {
    capacity_ = std::min(nodes, slots_in(tables - 1) / 2);
    populate_ = populate;
    ready_ = populate == nullptr ? static_cast<StackId>(capacity_) : 0;
    owns_nodes_ = storage == nullptr;
    nodes_ = owns_nodes_ ? static_cast<Node*>(map_memory(capacity_ * sizeof(Node))) : storage;
    for (unsigned table = 0; table < tables; ++table) {
        slots_[table] = static_cast<std::atomic<Slot>*>(map_memory(slots_in(table) * sizeof(Slot)));
        if (slots_[table] == nullptr) return false;
    }
    links_ = static_cast<Link*>(map_memory(link_count * sizeof(Link)));
    used_ = lost_root + 1;
    return nodes_ != nullptr && links_ != nullptr && make_ready(lost_root);
}

bool Tree::make_ready(StackId id) {
    StackId ready = ready_.load(std::memory_order_acquire);
    while (id >= ready) {
        const std::size_t step = std::min<std::size_t>(nodes_per_step, capacity_ - ready);
        if (!populate_(nodes_ + ready, step * sizeof(Node))) return false;
        const StackId end = ready + static_cast<StackId>(step);
        if (ready_.compare_exchange_weak(ready, end, std::memory_order_acq_rel)) ready = end;
    }
    return true;
}

void Tree::release() {
    if (nodes_ != nullptr && owns_nodes_) munmap(nodes_, capacity_ * sizeof(Node));
    for (unsigned table = 0; table < tables; ++table) {
        if (slots_[table] != nullptr)
            munmap(static_cast<void*>(slots_[table]), slots_in(table) * sizeof(Slot));
        slots_[table] = nullptr;
    }
    if (links_ != nullptr) munmap(static_cast<void*>(links_), link_count * sizeof(Link));
    nodes_ = nullptr;
    links_ = nullptr;
}

StackId Tree::child(StackId parent, std::uint64_t address) {
    const std::uint64_t h = mix(parent, address);
    const std::uint32_t tag = static_cast<std::uint32_t>(h >> 32) << id_bits;
    const auto matches = [&](Slot slot) {
        if ((slot ^ tag) >> id_bits != 0) return false;
        const Node& node = nodes_[slot & id_mask];
        return node.parent == parent && node.address == address;
    };
    const unsigned newest = table_of(std::min<StackId>(used_.load(std::memory_order_acquire),
                                                       static_cast<StackId>(capacity_ - 1)));
    for (unsigned table = newest + 1; table-- > 0;) {
        const std::size_t mask = slots_in(table) - 1;
        for (std::size_t index = h & mask;; index = (index + 1) & mask) {
            const Slot slot = slots_[table][index].load(std::memory_order_acquire);
            if (slot == 0) break;
            if (matches(slot)) return slot & id_mask;
        }
    }
    const StackId id = used_.fetch_add(1, std::memory_order_acq_rel);
    if (id < capacity_ && __builtin_expect(id >= ready_.load(std::memory_order_acquire), 0) &&
        !make_ready(id))
        capacity_ = ready_.load(std::memory_order_acquire);  // the memory is exhausted
    if (id >= capacity_) {
        used_.store(static_cast<StackId>(capacity_), std::memory_order_release);
        return no_stack;
    }
    nodes_[id].parent = parent;
    std::atomic_ref(nodes_[id].address).store(address, std::memory_order_release);
    std::atomic<Slot>* slots = slots_[table_of(id)];
    const std::size_t mask = slots_in(table_of(id)) - 1;
    for (std::size_t index = h & mask;; index = (index + 1) & mask) {
        Slot slot = 0;
        if (slots[index].compare_exchange_strong(slot, id | tag, std::memory_order_acq_rel)) {
            link(parent, id);
            return id;
        }
        if (matches(slot)) {  // another thread inserted it first
            nodes_[id].address = unused_address;
            return slot & id_mask;
        }
    }
}

void Tree::link(StackId parent, StackId id) {
    if (id >= link_count) return;  // later nodes have no links, nor have their children
    std::atomic<StackId>& first = links_[parent].first_child;
    StackId next = first.load(std::memory_order_relaxed);
    do {
        links_[id].next.store(next, std::memory_order_relaxed);
    } while (!first.compare_exchange_weak(next, id, std::memory_order_acq_rel));
}

StackId Tree::insert(StackId root, std::span<const std::uint64_t> addresses) {
    StackId id = root;
    for (std::size_t k = addresses.size(); k-- > 0 && id != no_stack;) id = child(id, addresses[k]);
    return id;
}

}  // namespace assay::stack
