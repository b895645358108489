// Finds what an address of a profiled process belongs to: a block, a mapping, a stack, an object's
// data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace assay::numa {

enum class ObjectKind : std::uint8_t { heap, mapping, global, stack, small, other };
const char* name_of(ObjectKind kind);

// A kind of object that the profile tells apart: all blocks of one allocating stack, a variable,
// the stacks of all threads.
struct Object {
    ObjectKind kind;
    std::string name;
    std::uint32_t ring = 0, stack = 0;  // the allocating stack in the ring with this number
    std::uint64_t bytes = 0, count = 0;
};

// Where an address belongs. `instance` tells one block from the next at the same address; 0 for
// memory that is no block.
struct Place {
    std::uint32_t object;
    std::uint64_t instance;
    std::uint64_t begin, end;  // of the block or region; 0 where none is known
};

struct Policy {
    int mode = 0;
    std::uint64_t nodes = 0;
    std::uint64_t begin = 0;  // of the range, for interleaving
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
    // The child of a fork has its parent's blocks.
    void inherit(const AddressSpace& parent);

    void allocate(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring,
                  std::uint32_t stack);
    void release(std::uint64_t address);
    void map(std::uint64_t address, std::uint64_t bytes, std::uint32_t ring, std::uint32_t stack);
    void unmap(std::uint64_t address, std::uint64_t bytes);
    void add_stack(std::uint64_t address, std::uint64_t bytes);
    void add_own(std::uint64_t address, std::uint64_t bytes);
    void set_policy(std::uint64_t address, std::uint64_t bytes, Policy policy);

    bool is_own(std::uint64_t address) const;
    Place find(std::uint64_t address);
    const Policy* policy_of(std::uint64_t address) const;
    const std::vector<Object>& objects() const { return objects_; }
    const std::vector<Region>& refresh();  // the regions as they are now; kept once it has ended

private:
    struct Block {
        std::uint64_t end;
        std::uint32_t object;
        std::uint64_t instance;
    };
    using Blocks = std::map<std::uint64_t, Block>;
    static const Blocks::value_type* find_in(const Blocks& blocks, std::uint64_t address);
    static void cut(Blocks& blocks, std::uint64_t begin, std::uint64_t end);
    std::uint32_t object(ObjectKind kind, const std::string& name, std::uint32_t ring = 0,
                         std::uint32_t stack = 0);
    Place find_region(std::uint64_t address);

    std::uint32_t pid_;
    std::vector<Object> objects_;
    std::map<std::string, std::uint32_t> by_key_;
    Blocks blocks_, mappings_, stacks_, own_;
    std::map<std::uint64_t, std::pair<std::uint64_t, Policy>> policies_;  // begin: end and policy
    std::vector<Region> regions_;
    std::int64_t last_refresh_ = 0;
    std::uint64_t last_instance_ = 0;
};

}  // namespace assay::numa
