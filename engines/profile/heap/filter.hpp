// Selects the blocks that are recorded: all, those of a minimum size, or a sample.
//
// Sampling selects each requested byte with the same probability, and with it the block, as
// gperftools and Go do: large blocks nearly always, small ones rarely. A table holds the addresses
// of the sampled blocks, so that their frees are recorded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace assay::heap {

struct Filter {
    bool is_active = false;  // false: all blocks are recorded
    std::uint64_t min_block_bytes = 0;
    std::uint64_t sample_bytes = 0;  // mean requested bytes per recorded block; 0: all blocks
};
extern Filter filter;

// A set-associative hash table of the addresses of live sampled blocks: sets of 4 (half a cache
// line). A block whose set is full is lost: its event is counted so.
class SampledBlocks {
public:
    bool reserve();  // false if there is no memory
    bool insert(const void* block);
    bool erase(const void* block);  // false if it was not in the set

private:
    static constexpr std::size_t set_bits = 17, ways = 4;
    std::atomic<std::uint64_t>* find_set(const void* block) const;

    std::atomic<std::uint64_t>* slots_ = nullptr;
};
extern SampledBlocks sampled_blocks;

// The number of bytes until the next sample, exponentially distributed. `state`: the thread's
// random generator.
std::int64_t next_sample_interval(std::uint64_t& state);

}  // namespace assay::heap
