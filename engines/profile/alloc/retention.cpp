// What stays resident after free: blocks of one size, again and again, and a look at the process after each time.
#include "profile/alloc/measured.hpp"

namespace assay::alloc {

void run_retention(const Task& task, Board& board) {
    const std::size_t count = std::max<std::size_t>(1, task.total / task.size), page = page_bytes();
    Own<void*> blocks(count);
    const auto above = [base = resident().bytes] {
        const std::uint64_t here = resident().bytes;
        return here > base ? static_cast<double>(here - base) : 0.0;
    };
    if (resident().bytes == 0) refuse("this kernel does not count resident pages exactly (no smaps_rollup)");
    for (std::uint32_t cycle = 1; cycle <= task.cycles; ++cycle) {
        check_memory(count * task.size);
        for (void*& block : blocks) touch(block = given(task.size), task.size, page);
        if (cycle == task.cycles) {
            board.add(Series::live, above());
            board.add(Series::huge, static_cast<double>(resident().huge));
        }
        for (void* block : blocks) std::free(block);
        if (cycle == 1) board.add(Series::retained_first, above());
        if (cycle == task.cycles) board.add(Series::retained, above());
    }
}

}  // namespace assay::alloc
