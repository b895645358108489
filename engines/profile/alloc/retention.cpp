// The measurement `retention`: blocks of one size are allocated, touched and freed in cycles, and
// the resident memory is read after some of the cycles.
#include "profile/alloc/measured_process.hpp"

namespace assay::alloc {

void run_retention(const Task& task, SharedResults& results) {
    const std::size_t count = std::max<std::size_t>(1, task.total / task.size), page = page_bytes();
    MappedArray<void*> blocks(count);
    const ResidentMemory start = resident_at_start();
    const auto bytes_above = [](std::uint64_t bytes, std::uint64_t before) {
        return bytes > before ? static_cast<double>(bytes - before) : 0.0;
    };
    for (std::uint32_t cycle = 1; cycle <= task.cycles; ++cycle) {
        check_memory(count * task.size);
        for (void*& block : blocks) touch(block = must_malloc(task.size), task.size, page);
        if (cycle == task.cycles) {
            const ResidentMemory memory = resident_memory();
            results.add(Series::live, bytes_above(memory.bytes, start.bytes));
            results.add(Series::huge, bytes_above(memory.huge, start.huge));
        }
        for (void* block : blocks) std::free(block);
        if (cycle == 1)
            results.add(Series::retained_first, bytes_above(resident_memory().bytes, start.bytes));
        if (cycle == (task.cycles + 1) / 2)
            results.add(Series::retained_half, bytes_above(resident_memory().bytes, start.bytes));
        if (cycle == task.cycles)
            results.add(Series::retained, bytes_above(resident_memory().bytes, start.bytes));
    }
}

}  // namespace assay::alloc
