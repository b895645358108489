// The address space of a profiled process: finds the heap block, mapping, thread stack or file
// segment that holds an address.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace assay::numa {

enum class ObjectKind : std::uint8_t { heap, mapping, global, stack, small, other };
const char* name_of(ObjectKind kind);

// An object of the profile: all blocks that one call stack allocates, the data of one file, or the
// stacks of all threads.
struct Object {
    ObjectKind kind;
    std::string name;
    std::uint32_t ring = 0, stack = 0;   // number of the ring, and of the allocating stack in it
    std::uint64_t bytes = 0, count = 0;  // allocated bytes and blocks, in total
};

// The object that holds an address. Each allocation has its own `instance`, so that successive
// blocks at the same address differ; 0 outside of blocks.
struct Location {
    std::uint32_t object;
    std::uint64_t instance;
    std::uint64_t begin, end;  // of the block or region; both 0 if unknown
};

// A NUMA memory policy (set_mempolicy(2)) of a thread or an address range.
struct Policy {
    int mode = 0;             // MPOL_...
    std::uint64_t nodes = 0;  // bit mask
    std::uint64_t begin = 0;  // address of the range, for interleaving
};

// A line of /proc/PID/maps.
struct Region {
    std::uint64_t begin, end;
    bool writable, shared;
    std::string path;  // "[heap]", "[stack]", a file, or empty
};
std::vector<Region> read_regions(std::uint32_t pid);

class AddressSpace {
public:
    explicit AddressSpace(std::uint32_t pid) : pid_(pid) {}
    // Copies the parent's blocks and mappings after a fork.
    void inherit(const AddressSpace& parent);

    void allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring,
                  std::uint32_t stack);
    void release(std::uint64_t address);
    void map(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring, std::uint32_t stack);
    void unmap(std::uint64_t address, std::uint64_t bytes);
    void add_stack(std::uint64_t address, std::uint64_t bytes);
    void add_profiler_memory(std::uint64_t address, std::uint64_t bytes);
    void set_policy(std::uint64_t address, std::uint64_t bytes, Policy policy);

    bool is_profiler_memory(std::uint64_t address) const;
    Location find(std::uint64_t address);
    const Policy* policy_of(std::uint64_t address) const;
    const std::vector<Object>& objects() const { return objects_; }
    const std::vector<Region>& refresh();  // reads /proc/PID/maps; after exit: the last state

private:
    struct Block {
        std::uint64_t end;
        std::uint32_t object;
        std::uint64_t instance;
    };
    using Blocks = std::map<std::uint64_t, Block>;
    static const Blocks::value_type* find_in(const Blocks& blocks, std::uint64_t address);
    static void remove_range(Blocks& blocks, std::uint64_t begin, std::uint64_t end);
    std::uint32_t object(ObjectKind kind, const std::string& name, std::uint32_t ring = 0,
                         std::uint32_t stack = 0);
    Location find_region(std::uint64_t address);

    std::uint32_t pid_;
    std::vector<Object> objects_;
    std::map<std::string, std::uint32_t> object_ids_;
    Blocks blocks_, mappings_, stacks_, profiler_memory_;
    std::map<std::uint64_t, std::pair<std::uint64_t, Policy>> policies_;  // begin: end and policy
    std::vector<Region> regions_;
    std::int64_t last_refresh_ = 0;
    std::uint64_t last_instance_ = 0;
};

}  // namespace assay::numa
