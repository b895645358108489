#include "profile/stack/tree.hpp"

#include <sys/mman.h>

#include <bit>

namespace assay::stack {
namespace {

void* map(std::size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}

std::uint64_t mix(StackId parent, std::uint64_t address) {
    std::uint64_t h = (address ^ (std::uint64_t{parent} << 40) ^ parent) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
    return h * 0xbf58476d1ce4e5b9ull >> 16;
}

}  // namespace

bool Tree::reserve(std::size_t nodes, Node* storage) {
    capacity_ = nodes;
    owns_nodes_ = storage == nullptr;
    const std::size_t slots = std::bit_ceil(2 * nodes);
    slot_mask_ = slots - 1;
    nodes_ = owns_nodes_ ? static_cast<Node*>(map(capacity_ * sizeof(Node))) : storage;
    slots_ = static_cast<std::atomic<StackId>*>(map(slots * sizeof(StackId)));
    used_ = lost_root + 1;
    return nodes_ != nullptr && slots_ != nullptr;
}

void Tree::release() {
    if (nodes_ != nullptr && owns_nodes_) munmap(nodes_, capacity_ * sizeof(Node));
    if (slots_ != nullptr) munmap(static_cast<void*>(slots_), (slot_mask_ + 1) * sizeof(StackId));
    nodes_ = nullptr;
    slots_ = nullptr;
}

StackId Tree::child(StackId parent, std::uint64_t address) {
    StackId mine = no_stack;
    for (std::size_t at = mix(parent, address) & slot_mask_;; at = (at + 1) & slot_mask_) {
        StackId found = slots_[at].load(std::memory_order_acquire);
        if (found == no_stack) {
            if (mine == no_stack) {
                mine = used_.fetch_add(1, std::memory_order_acq_rel);
                if (mine >= capacity_) {
                    used_.store(static_cast<StackId>(capacity_), std::memory_order_release);
                    return no_stack;
                }
                nodes_[mine] = {parent, address};
            }
            if (slots_[at].compare_exchange_strong(found, mine, std::memory_order_acq_rel)) return mine;
        }
        if (nodes_[found].parent == parent && nodes_[found].address == address) {
            if (mine != no_stack) nodes_[mine].address = 0;
            return found;
        }
    }
}

StackId Tree::insert(StackId root, std::span<const std::uint64_t> addresses) {
    StackId id = root;
    for (std::size_t k = addresses.size(); k-- > 0 && id != no_stack;) id = child(id, addresses[k]);
    return id;
}

}  // namespace assay::stack
