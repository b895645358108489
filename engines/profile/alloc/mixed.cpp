// The measurement `mixed`: the ratio of resident to live memory, for random sizes and lifetimes.
//
// Sizes are log-uniform from 16 B to 256 KiB. Small blocks come first; nine of ten are freed at
// random; then come larger blocks, for which the holes are too small. The ratio of peak resident to
// peak live memory is the allocator's overhead. The ratio of resident to live memory at the end
// shows how much of the holes the allocator retains.
#include <algorithm>

#include "profile/alloc/measured_process.hpp"

namespace assay::alloc {
namespace {

constexpr double min_mixed_size = 16, max_small_size = 4096, max_mixed_size = 256 << 10;
constexpr int readings_per_phase = 32;  // of the resident memory

struct MixedBlock {
    void* address;
    std::size_t size;
};

class Mixture {
public:
    Mixture(const Task& task, SharedResults& results)
        : task_(task),
          results_(results),
          blocks_(task.total / 512),
          resident_at_start_(resident_at_start().bytes) {}

    void run() {
        fill(min_mixed_size, max_small_size);
        free_random(0.1);
        fill(min_mixed_size, max_mixed_size);
        replace(min_mixed_size, max_mixed_size);
        const double peak = ratio(max_resident_, max_live_);
        free_random(0.1);
        read_resident();
        results_.add(Series::peak_over_live, peak);
        results_.add(Series::end_over_live, ratio(resident_, live_));
        results_.add(Series::operation, static_cast<double>(spent_ticks_) * task_.tick_s /
                                            static_cast<double>(calls_));
        free_random(0);
        read_resident();
        results_.add(Series::retained, static_cast<double>(resident_));
    }

private:
    static double ratio(std::uint64_t a, std::uint64_t b) {
        return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
    }

    // Allocates until task.total bytes are live.
    void fill(double min, double max) {
        const std::uint64_t step = task_.total / readings_per_phase;
        std::uint64_t next_reading = live_ + step;
        while (live_ < task_.total && count_ < blocks_.size()) {
            allocate(blocks_[count_], random_.log_uniform(min, max));
            ++count_;
            if (live_ < next_reading) continue;
            next_reading += step;
            read_resident();
        }
        read_resident();
    }

    // Frees all blocks except for a random share.
    void free_random(double kept_share) {
        std::size_t survivors = 0;
        for (std::size_t k = 0; k < count_; ++k) {
            if (random_.uniform() < kept_share) blocks_[survivors++] = blocks_[k];
            else free_block(blocks_[k]);
        }
        count_ = survivors;
    }

    // Replaces random blocks, four times as often as there are blocks; at most task.total bytes
    // stay live.
    void replace(double min, double max) {
        const std::size_t replacements = 4 * count_;
        for (std::size_t k = 0; k < replacements; ++k) {
            MixedBlock& block = blocks_[random_() % count_];
            free_block(block);
            allocate(block, random_.log_uniform(min, max));
            while (live_ > task_.total && count_ > 1) {
                free_block(blocks_[count_ - 1]);
                --count_;
            }
            if (k % (replacements / readings_per_phase + 1) == 0) read_resident();
        }
        read_resident();
    }

    void allocate(MixedBlock& block, std::size_t size) {
        const std::uint64_t begin = ticks();
        void* address = std::malloc(size);
        spent_ticks_ += ticks() - begin;
        ++calls_;
        if (address == nullptr) waive("malloc(%zu) returned no memory", size);
        block = {address, size};
        touch(address, size, page_bytes_);
        live_ += size;
        max_live_ = std::max(max_live_, live_);
    }

    void free_block(MixedBlock& block) {
        const std::uint64_t begin = ticks();
        std::free(block.address);
        spent_ticks_ += ticks() - begin;
        ++calls_;
        live_ -= block.size;
        block = {nullptr, 0};
    }

    void read_resident() {
        check_memory(/*bytes=*/0);
        const std::uint64_t bytes = resident_memory().bytes;
        resident_ = bytes > resident_at_start_ ? bytes - resident_at_start_ : 0;
        max_resident_ = std::max(max_resident_, resident_);
    }

    const Task& task_;
    SharedResults& results_;
    MappedArray<MixedBlock> blocks_;
    Random random_{7};
    std::size_t count_ = 0, page_bytes_ = page_bytes();
    std::uint64_t live_ = 0, max_live_ = 0, resident_at_start_, resident_ = 0, max_resident_ = 0,
                  spent_ticks_ = 0, calls_ = 0;
};

}  // namespace

void run_mixed(const Task& task, SharedResults& results) { Mixture(task, results).run(); }

}  // namespace assay::alloc
