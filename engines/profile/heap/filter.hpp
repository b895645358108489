// Which blocks are recorded: all, those of at least some size, or a sample.
//
// Sampling takes each requested byte with the same probability, and with it the block: large blocks
// nearly always, small ones seldom, as gperftools and Go do. A table of the sampled blocks'
// addresses tells whether a freed block was sampled.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::heap {

struct Filter {
    bool is_active = false;  // not all blocks are recorded
    std::uint64_t min_block_bytes = 0,
                  sample = 0;  // bytes; about one block in `sample` bytes, 0: all
};
extern Filter filter;

// A hash set of the addresses of live sampled blocks, in sets of 4 (half a cache line). A block
// whose set is full is not sampled.
class SampledBlocks {
public:
    bool reserve();  // false if there is no memory
    bool insert(const void* block);
    bool erase(const void* block);  // false if it was not in the set

private:
    static constexpr std::size_t set_bits = 17, ways = 4;
    std::atomic<std::uint64_t>* set_of(const void* block) const;

    std::atomic<std::uint64_t>* slots_ = nullptr;
};
extern SampledBlocks sampled_blocks;

// Bytes until the next sample, exponentially distributed. `state` is the thread's generator.
std::int64_t next_sample_gap(std::uint64_t& state);

}  // namespace assay::heap
