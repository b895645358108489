// The objects of the exact modes: blocks and mappings by their allocating stack. A second shadow
// memory holds the block of each page, so that the object of a page is found with one load.
#include <linux/mempolicy.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "profile/numa/exact/runtime.hpp"
#include "profile/numa/hooks/apply.hpp"
#include "profile/numa/hooks/capture.hpp"
#include "profile/numa/hooks/tracker.hpp"
#include "profile/stack/region.hpp"

namespace assay::numa {
namespace {

constexpr std::uint32_t max_objects = max_classes / parts_per_object, max_blocks = 1 << 20,
                        no_block = 0;
constexpr std::uint32_t other_object = 0;  // stacks, variables, blocks of less than a page

struct Block {
    std::uint64_t begin, bytes;
    std::uint32_t object, next_free;
};
struct ObjectInfo {
    stack::StackId stack;
    bool is_mapping;
    std::uint64_t bytes, count;
};
struct FirstTouch {
    std::uint64_t pc;
    std::uint32_t object, thread, pages;
    std::uint8_t thread_node, page_node;
};
constexpr std::uint32_t max_first_touches = 1 << 16;

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
std::uint32_t* block_of_page = nullptr;
Block* blocks = nullptr;
ObjectInfo* objects = nullptr;
std::uint32_t* object_of_stack = nullptr;  // by number of the stack's node
constexpr std::uint32_t stack_nodes = 1 << 20;
std::uint32_t block_count = 1, object_count = 1, free_block = no_block;
FirstTouch* first_touches = nullptr;

class Lock {
public:
    Lock() { pthread_mutex_lock(&mutex); }
    ~Lock() { pthread_mutex_unlock(&mutex); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
};

std::uint32_t find_or_add_object(stack::StackId stack, bool is_mapping) {
    if (stack >= stack_nodes) return other_object;
    if (object_of_stack[stack] != 0) return object_of_stack[stack];
    if (object_count == max_objects) return other_object;
    objects[object_count] = {stack, is_mapping, 0, 0};
    return object_of_stack[stack] = object_count++;
}

// The pages of a block: those that begin within it, and its first page if the block begins in the
// first half of that page.
void block_pages(const Block& block, std::uint64_t& first, std::uint64_t& end) {
    first = (block.begin + 2048) >> 12;
    end = (block.begin + block.bytes + 2047) >> 12;
    if (end == first) ++end;
}

void add_block(const void* address, std::size_t bytes, const stack::Frame& caller,
               bool is_mapping) {
    if (!is_counting) return;
    const stack::StackId stack = capture(caller);
    {
        const Lock lock;
        std::uint32_t number = free_block;
        if (number != no_block) free_block = blocks[number].next_free;
        else if (block_count < max_blocks) number = block_count++;
        else return;
        const std::uint32_t object = find_or_add_object(stack, is_mapping);
        blocks[number] = {reinterpret_cast<std::uint64_t>(address), bytes, object, no_block};
        objects[object].bytes += bytes;
        ++objects[object].count;
        std::uint64_t first, end;
        block_pages(blocks[number], first, end);
        for (std::uint64_t page = first; page < end; ++page) {
            block_of_page[page] = number;
            shadow()[page] = 0;
        }
    }
    apply_plan(address, bytes, stack);
}

void remove_block(std::uint64_t address) {
    if (!is_counting) return;
    const Lock lock;
    const std::uint32_t number = block_of_page[(address + 2048) >> 12];
    if (number == no_block || blocks[number].begin != address) return;
    std::uint64_t first, end;
    block_pages(blocks[number], first, end);
    for (std::uint64_t page = first; page < end; ++page) {
        block_of_page[page] = no_block;
        shadow()[page] = 0;
    }
    blocks[number].next_free = free_block;
    free_block = number;
}

std::uint32_t shadow_value_of(std::uint64_t page, unsigned node, std::uint32_t& object) {
    std::uint32_t part = 0;
    object = other_object;
    const std::uint32_t number = block_of_page[page];
    if (number != no_block) {
        const Block& block = blocks[number];
        std::uint64_t first, end;
        block_pages(block, first, end);
        object = block.object;
        part = static_cast<std::uint32_t>((page - first) * parts_per_object / (end - first));
    }
    return (object * parts_per_object + part + 1) << node_bits | node;
}

int node_of_page(std::uint64_t page) {
    void* address = reinterpret_cast<void*>(page << 12);
    int node = -1;
    if (syscall(SYS_move_pages, 0L, 1UL, &address, nullptr, &node, 0L) != 0) return -1;
    return node < static_cast<int>(max_real_nodes) ? node : -1;
}

void count_touch(std::uint64_t pc, std::uint32_t object, std::uint32_t thread, unsigned cpu_node,
                 unsigned node) {
    const Lock lock;
    const std::uint64_t hash = (pc * 0x9e3779b97f4a7c15ull) ^ (object * 0x85ebca6bull) ^
                               (thread * 0xc2b2ae35ull) ^ (cpu_node * 8 + node);
    for (std::uint32_t k = 0; k < 64; ++k) {
        FirstTouch& entry = first_touches[(hash + k) % max_first_touches];
        if (entry.pages == 0)
            entry = {pc,
                     object,
                     thread,
                     0,
                     static_cast<std::uint8_t>(cpu_node),
                     static_cast<std::uint8_t>(node)};
        if (entry.pc != pc || entry.object != object || entry.thread != thread ||
            entry.thread_node != cpu_node || entry.page_node != node)
            continue;
        ++entry.pages;
        return;
    }
}

}  // namespace

bool reserve_objects() {
    block_of_page = static_cast<std::uint32_t*>(map_zeroed(page_count * 4));
    blocks = static_cast<Block*>(map_zeroed(max_blocks * sizeof(Block)));
    objects = static_cast<ObjectInfo*>(map_zeroed(max_objects * sizeof(ObjectInfo)));
    object_of_stack = static_cast<std::uint32_t*>(map_zeroed(stack_nodes * 4));
    first_touches = static_cast<FirstTouch*>(map_zeroed(max_first_touches * sizeof(FirstTouch)));
    return block_of_page != nullptr && blocks != nullptr && objects != nullptr &&
           object_of_stack != nullptr && first_touches != nullptr && stacks.reserve(stack_nodes);
}

std::uint32_t enter_page(std::uint64_t address, bool write, std::uint64_t pc,
                         ThreadCounts& counts) {
    const std::uint64_t page = address >> 12;
    const unsigned cpu_node = thread_node();
    std::uint32_t object = 0;
    if (page >= page_count) return unknown_node;
    int node = is_emulated() ? static_cast<int>(cpu_node) : node_of_page(page);
    const bool is_new = is_emulated() || node < 0;
    if (node < 0 && write) {
        // The program is about to write here. Touching the page now makes the kernel place it.
        __atomic_fetch_or(reinterpret_cast<char*>(address), 0, __ATOMIC_RELAXED);
        node = node_of_page(page);
    }
    const unsigned page_node = node < 0 ? unknown_node : static_cast<unsigned>(node);
    const std::uint32_t value = shadow_value_of(page, page_node, object);
    if (node < 0) return value;  // the shared zero page: the next access enters the page again
    shadow()[page] = value;
    if (is_new) count_touch(pc, object, counts.number, cpu_node, page_node);
    return value;
}

ClassInfo class_info(std::uint32_t number) {
    return {(number - 1) / parts_per_object, (number - 1) % parts_per_object};
}

std::uint32_t class_count() { return object_count * parts_per_object; }

void write_objects(Lines& lines, std::uint64_t first_stack) {
    lines.write("object", other_object, Text("other"), Text("stacks, variables, small blocks"), 0,
                0, 0);
    for (std::uint32_t k = 1; k < object_count; ++k) {
        std::uint64_t addresses[256];
        std::size_t depth = 0;
        for (stack::StackId id = objects[k].stack; id > stack::lost_root && depth < 256;
             id = stacks.node(id).parent)
            addresses[depth++] = stacks.node(id).address;
        lines.write("stack", first_stack + k, List<std::uint64_t>{addresses, depth});
        lines.write("object", k, Text(objects[k].is_mapping ? "mapping" : "heap"), Text(""),
                    first_stack + k, objects[k].bytes, objects[k].count);
    }
}

void write_touches(Lines& lines) {
    for (std::uint32_t k = 0; k < max_first_touches; ++k) {
        const FirstTouch& entry = first_touches[k];
        if (entry.pages == 0) continue;
        const std::uint64_t stack = stack_of(entry.pc, lines);
        lines.write("touch", entry.object, stack, entry.thread,
                    entry.thread_node == unknown_node ? -1 : static_cast<int>(entry.thread_node),
                    entry.page_node == unknown_node ? -1 : static_cast<int>(entry.page_node), 0,
                    entry.pages, 0);
    }
}

void track_allocation(const void* block, std::size_t bytes, const stack::Frame& caller) {
    add_block(block, bytes, caller, false);
}
void track_release(const void* block) { remove_block(reinterpret_cast<std::uint64_t>(block)); }
void track_mapping(const void* address, std::size_t bytes, const stack::Frame& caller) {
    add_block(address, bytes, caller, true);
}
void track_unmapping(const void* address, std::size_t bytes) {
    stack::unmap_count.fetch_add(1, std::memory_order_release);
    if (!is_counting) return;
    remove_block(reinterpret_cast<std::uint64_t>(address));
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(address) >> 12;
    for (std::uint64_t page = first; page < first + ((bytes + 4095) >> 12); ++page)
        shadow()[page] = 0;
}

// On emulated nodes a policy determines the node of each page immediately.
void track_policy(const void* address, std::size_t bytes, int mode, std::uint64_t nodes) {
    nodes &= all_nodes();  // a program may name nodes that do not exist
    if (!is_counting || nodes == 0) return;
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(address) >> 12;
    const Lock lock;
    for (std::uint64_t k = 0; k < bytes >> 12; ++k) {
        std::uint32_t object = 0;
        unsigned node = static_cast<unsigned>(__builtin_ctzll(nodes));
        if ((mode & 0xff) == MPOL_INTERLEAVE) {
            auto skipped = k % static_cast<unsigned>(__builtin_popcountll(nodes));
            for (node = 0; (nodes >> node & 1) == 0 || skipped-- != 0;) ++node;
        }
        shadow()[first + k] = is_emulated() ? shadow_value_of(first + k, node, object) : 0;
    }
}
void track_thread_policy(int, std::uint64_t) {}
void track_affinity(int, std::uint64_t, std::uint64_t) {}
void track_thread_start() {}
void track_fork_in_child() {}
void exclude_profiler_memory(const void*, std::size_t) {}
bool applies_policies() { return !is_emulated(); }

}  // namespace assay::numa
