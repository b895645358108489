// The set of sampled blocks, and the generator of sampling intervals.
#include "profile/heap/filter.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

namespace assay::heap {

Filter filter;
SampledBlocks sampled_blocks;

bool SampledBlocks::reserve() {
    const std::size_t bytes = (std::size_t{1} << set_bits) * ways * sizeof *slots_;
    const long mapping = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == -1) return false;
    if (slots_ != nullptr) syscall(SYS_munmap, slots_, bytes);
    slots_ = reinterpret_cast<std::atomic<std::uint64_t>*>(mapping);
    return true;
}

std::atomic<std::uint64_t>* SampledBlocks::find_set(const void* block) const {
    const std::uint64_t hash = reinterpret_cast<std::uint64_t>(block) * 0x9e3779b97f4a7c15ull;
    return slots_ + (hash >> (64 - set_bits)) * ways;
}

bool SampledBlocks::insert(const void* block) {
    std::atomic<std::uint64_t>* set = find_set(block);
    for (std::size_t way = 0; way < ways; ++way) {
        std::uint64_t empty = 0;
        if (set[way].compare_exchange_strong(empty, reinterpret_cast<std::uint64_t>(block),
                                             std::memory_order_acq_rel))
            return true;
    }
    return false;
}

bool SampledBlocks::erase(const void* block) {
    std::atomic<std::uint64_t>* set = find_set(block);
    const auto address = reinterpret_cast<std::uint64_t>(block);
    for (std::size_t way = 0; way < ways; ++way)
        if (set[way].load(std::memory_order_acquire) == address) {
            set[way].store(0, std::memory_order_release);
            return true;
        }
    return false;
}

namespace {

// The natural logarithm for 0 < x <= 1, with an error of at most 1e-6. libm is not used, since the
// program may not have loaded it.
double logarithm(double x) {
    constexpr double ln2 = 0.6931471805599453;
    constexpr std::uint64_t mantissa = (std::uint64_t{1} << 52) - 1,
                            exponent_of_1 = std::uint64_t{1023} << 52;
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const int exponent = static_cast<int>(bits >> 52) - 1023;
    const auto m = std::bit_cast<double>((bits & mantissa) | exponent_of_1);  // 1 <= m < 2
    const double z = (m - 1.4142135623730951) / (m + 1.4142135623730951), zz = z * z;
    return ln2 * (exponent + 0.5) +
           2 * z * (1 + zz * (1.0 / 3 + zz * (1.0 / 5 + zz * (1.0 / 7 + zz / 9))));
}

}  // namespace

std::int64_t next_sample_interval(std::uint64_t& state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double uniform = (static_cast<double>(state >> 11) + 1) * 0x1p-53;
    return static_cast<std::int64_t>(-logarithm(uniform) *
                                     static_cast<double>(filter.sample_bytes)) +
           1;
}

}  // namespace assay::heap
