// Which blocks are recorded: all, those of a size, or a sample.
//
// A sample takes each byte that is asked for with the same probability, and the block that it
// belongs to: large blocks nearly always, small ones seldom (gperftools' and Go's way). Whether a
// block that is freed was taken is looked up in a table of their addresses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::heap {

struct Filter {
    bool is_on = false;                      // not all are recorded
    std::uint64_t at_least = 0, sample = 0;  // bytes; sample 0: all
};
extern Filter filter;

// Addresses of the live blocks that were taken: sets of a few, each a half of a cache line. One
// that finds its set full is not taken.
class TakenBlocks {
public:
    bool reserve();  // false when there is no memory
    bool insert(const void* block);
    bool erase(const void* block);  // whether it was there

private:
    static constexpr std::size_t set_bits = 17, ways = 4;
    std::atomic<std::uint64_t>* set_of(const void* block) const;

    std::atomic<std::uint64_t>* slots_ = nullptr;
};
extern TakenBlocks taken;

// Bytes until the next one that is taken: exponentially distributed, of this thread.
std::int64_t next_gap(std::uint64_t& state);

}  // namespace assay::heap
