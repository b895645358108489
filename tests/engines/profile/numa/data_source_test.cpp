#include "profile/numa/record/data_source.hpp"

#include <doctest/doctest.h>

#include "planted_ring.hpp"

using namespace assay::numa;

namespace {

MemoryLevel by_bits(std::uint64_t bits) {
    return read_data_source(planted_source(PERF_MEM_OP_LOAD, bits)).level;
}

MemoryLevel by_level(std::uint64_t level, std::uint64_t remote = 0, std::uint64_t hops = 0) {
    return read_data_source(planted_source(PERF_MEM_OP_LOAD, PERF_MEM_LVL_NA, level, remote, hops))
        .level;
}

}  // namespace

TEST_CASE("the memory level of an access is read from the level bits of older kernels") {
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_L1) == MemoryLevel::local_cache);
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_L3) == MemoryLevel::local_cache);
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM) == MemoryLevel::local_memory);
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_REM_RAM1) == MemoryLevel::remote_memory);
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_REM_CCE1) == MemoryLevel::remote_cache);
    CHECK(by_bits(PERF_MEM_LVL_MISS | PERF_MEM_LVL_L3) == MemoryLevel::unknown);
    CHECK(by_bits(PERF_MEM_LVL_NA) == MemoryLevel::unknown);
    CHECK(by_bits(PERF_MEM_LVL_HIT | PERF_MEM_LVL_UNC) == MemoryLevel::unknown);
}

TEST_CASE("the memory level of an access is read from the level number of newer kernels") {
    CHECK(by_level(PERF_MEM_LVLNUM_L2) == MemoryLevel::local_cache);
    CHECK(by_level(PERF_MEM_LVLNUM_RAM) == MemoryLevel::local_memory);
    CHECK(by_level(PERF_MEM_LVLNUM_RAM, 1, PERF_MEM_HOPS_1) == MemoryLevel::remote_memory);
    CHECK(by_level(PERF_MEM_LVLNUM_RAM, 1) == MemoryLevel::remote_memory);
    CHECK(by_level(PERF_MEM_LVLNUM_ANY_CACHE, 1, PERF_MEM_HOPS_0) == MemoryLevel::local_cache);
    CHECK(by_level(PERF_MEM_LVLNUM_ANY_CACHE, 1, PERF_MEM_HOPS_2) == MemoryLevel::remote_cache);
    CHECK(by_level(PERF_MEM_LVLNUM_PMEM) == MemoryLevel::local_memory);
    CHECK(by_level(0x0a) == MemoryLevel::unknown);
    CHECK(by_level(PERF_MEM_LVLNUM_NA) == MemoryLevel::unknown);
}

TEST_CASE("an operation that stores at all is a store, and a prefetch is none") {
    CHECK(read_data_source(planted_source(PERF_MEM_OP_LOAD, 0)).operation == Operation::load);
    CHECK(read_data_source(planted_source(PERF_MEM_OP_STORE, 0)).operation == Operation::store);
    CHECK(read_data_source(planted_source(PERF_MEM_OP_LOAD | PERF_MEM_OP_STORE, 0)).operation ==
          Operation::store);
    CHECK(read_data_source(planted_source(PERF_MEM_OP_PFETCH, 0)).operation == Operation::none);
    CHECK(read_data_source(0).operation == Operation::none);
}
