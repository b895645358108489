#include "profile/numa/record/data_source.hpp"

#include <linux/perf_event.h>

namespace assay::numa {
namespace {

// Newer than the headers of Debian 12.
constexpr std::uint64_t level_mhb = 0x05, level_msc = 0x06, level_cxl = 0x09, level_io = 0x0a;

bool is_memory(std::uint64_t level) {
    return level == PERF_MEM_LVLNUM_RAM || level == PERF_MEM_LVLNUM_PMEM || level == level_cxl;
}

bool is_cache(std::uint64_t level) {
    return (level >= PERF_MEM_LVLNUM_L1 && level <= PERF_MEM_LVLNUM_L4) || level == level_mhb ||
           level == level_msc || level == PERF_MEM_LVLNUM_ANY_CACHE || level == PERF_MEM_LVLNUM_LFB;
}

Server server_of(const perf_mem_data_src& source) {
    const std::uint64_t bits = source.mem_lvl, level = source.mem_lvl_num;
    if ((bits & (PERF_MEM_LVL_REM_RAM1 | PERF_MEM_LVL_REM_RAM2)) != 0) return Server::far_memory;
    if ((bits & (PERF_MEM_LVL_REM_CCE1 | PERF_MEM_LVL_REM_CCE2)) != 0) return Server::far_cache;
    // "Remote" with the first number of hops is another core of the same node.
    const bool far = source.mem_remote != 0 && source.mem_hops != PERF_MEM_HOPS_0;
    if (is_memory(level)) return far ? Server::far_memory : Server::near_memory;
    if (is_cache(level)) return far ? Server::far_cache : Server::near_cache;
    if (level == level_io) return Server::unknown;
    if ((bits & PERF_MEM_LVL_LOC_RAM) != 0) return Server::near_memory;
    constexpr std::uint64_t caches =
        PERF_MEM_LVL_L1 | PERF_MEM_LVL_LFB | PERF_MEM_LVL_L2 | PERF_MEM_LVL_L3;
    // A miss says only who did not answer.
    if ((bits & caches) != 0 && (bits & PERF_MEM_LVL_HIT) != 0) return Server::near_cache;
    return Server::unknown;
}

}  // namespace

DataSource read_data_source(std::uint64_t value) {
    perf_mem_data_src source{};
    source.val = value;
    Operation operation = Operation::none;
    if ((source.mem_op & PERF_MEM_OP_STORE) != 0) operation = Operation::store;
    else if ((source.mem_op & PERF_MEM_OP_LOAD) != 0) operation = Operation::load;
    return {operation, server_of(source)};
}

}  // namespace assay::numa
