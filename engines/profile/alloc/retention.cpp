// What stays resident after free: blocks of one size, again and again, and a look at the process
// after each time.
#include "profile/alloc/measured.hpp"

namespace assay::alloc {

void run_retention(const Task& task, Board& board) {
    const std::size_t count = std::max<std::size_t>(1, task.total / task.size), page = page_bytes();
    Own<void*> blocks(count);
    const Resident base = first_look();
    const auto above = [](std::uint64_t here, std::uint64_t before) {
        return here > before ? static_cast<double>(here - before) : 0.0;
    };
    for (std::uint32_t cycle = 1; cycle <= task.cycles; ++cycle) {
        check_memory(count * task.size);
        for (void*& block : blocks) touch(block = given(task.size), task.size, page);
        if (cycle == task.cycles) {
            const Resident here = resident();
            board.add(Series::live, above(here.bytes, base.bytes));
            board.add(Series::huge, above(here.huge, base.huge));
        }
        for (void* block : blocks) std::free(block);
        if (cycle == 1) board.add(Series::retained_first, above(resident().bytes, base.bytes));
        if (cycle == (task.cycles + 1) / 2)
            board.add(Series::retained_half, above(resident().bytes, base.bytes));
        if (cycle == task.cycles) board.add(Series::retained, above(resident().bytes, base.bytes));
    }
}

}  // namespace assay::alloc
