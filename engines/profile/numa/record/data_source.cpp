// Decodes the data source of a perf memory sample into the operation and the memory level.
#include "profile/numa/record/data_source.hpp"

#include <linux/perf_event.h>

namespace assay::numa {
namespace {

// PERF_MEM_LVLNUM_... values that the kernel headers of Debian 12 lack.
constexpr std::uint64_t lvlnum_l2_mhb = 0x05, lvlnum_msc = 0x06, lvlnum_cxl = 0x09,
                        lvlnum_io = 0x0a;

bool is_memory_level(std::uint64_t number) {
    return number == PERF_MEM_LVLNUM_RAM || number == PERF_MEM_LVLNUM_PMEM || number == lvlnum_cxl;
}

bool is_cache_level(std::uint64_t number) {
    return (number >= PERF_MEM_LVLNUM_L1 && number <= PERF_MEM_LVLNUM_L4) ||
           number == lvlnum_l2_mhb || number == lvlnum_msc || number == PERF_MEM_LVLNUM_ANY_CACHE ||
           number == PERF_MEM_LVLNUM_LFB;
}

MemoryLevel memory_level(const perf_mem_data_src& source) {
    const std::uint64_t bits = source.mem_lvl, number = source.mem_lvl_num;
    if ((bits & (PERF_MEM_LVL_REM_RAM1 | PERF_MEM_LVL_REM_RAM2)) != 0)
        return MemoryLevel::remote_memory;
    if ((bits & (PERF_MEM_LVL_REM_CCE1 | PERF_MEM_LVL_REM_CCE2)) != 0)
        return MemoryLevel::remote_cache;
    // mem_remote with PERF_MEM_HOPS_0 means another core of the same node.
    const bool is_remote = source.mem_remote != 0 && source.mem_hops != PERF_MEM_HOPS_0;
    if (is_memory_level(number))
        return is_remote ? MemoryLevel::remote_memory : MemoryLevel::local_memory;
    if (is_cache_level(number))
        return is_remote ? MemoryLevel::remote_cache : MemoryLevel::local_cache;
    if (number == lvlnum_io) return MemoryLevel::unknown;
    if ((bits & PERF_MEM_LVL_LOC_RAM) != 0) return MemoryLevel::local_memory;
    constexpr std::uint64_t caches =
        PERF_MEM_LVL_L1 | PERF_MEM_LVL_LFB | PERF_MEM_LVL_L2 | PERF_MEM_LVL_L3;
    // A miss does not name the level that served the access.
    if ((bits & caches) != 0 && (bits & PERF_MEM_LVL_HIT) != 0) return MemoryLevel::local_cache;
    return MemoryLevel::unknown;
}

}  // namespace

DataSource read_data_source(std::uint64_t value) {
    perf_mem_data_src source{};
    source.val = value;
    Operation operation = Operation::none;
    if ((source.mem_op & PERF_MEM_OP_STORE) != 0) operation = Operation::store;
    else if ((source.mem_op & PERF_MEM_OP_LOAD) != 0) operation = Operation::load;
    return {operation, memory_level(source)};
}

}  // namespace assay::numa
