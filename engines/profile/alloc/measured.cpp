#include "profile/alloc/measured.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace assay::alloc {
namespace {

// The file that a function comes from, as this process calls it.
void file_of(const char* function, char (&into)[1024]) {
    Dl_info about;
    void* at = dlsym(RTLD_DEFAULT, function);
    const char* name = at != nullptr && dladdr(at, &about) != 0 ? about.dli_fname : "";
    std::snprintf(into, sizeof into, "%s", name);
}

void work(const Task& task, Board& board) {
    switch (task.what) {
        case What::serve: break;
        case What::cycle: return run_cycle(task, board);
        case What::touched: return run_touched(task, board);
        case What::retention: return run_retention(task, board);
        case What::churn: return run_churn(task, board);
        case What::handover: return run_handover(task, board);
        case What::mixed: return run_mixed(task, board);
        case What::replay: return run_replay(task, board);
    }
}

Board* board_of_all = nullptr;

}  // namespace

void refuse(const char* format, ...) {
    va_list words;
    va_start(words, format);
    std::vsnprintf(board_of_all->refused, sizeof board_of_all->refused, format, words);
    va_end(words);
    // From any thread, and without what would run at the end of a sound process.
    _exit(1);
}

void check_memory(std::size_t bytes) {
    constexpr std::size_t margin = 128 << 20;
    const std::uint64_t left = memory_left();
    if (left < bytes + margin)
        refuse("no memory for %zu MB more: %zu MB are left", bytes / 1'000'000,
               static_cast<std::size_t>(left / 1'000'000));
}

Resident first_look() {
    check_memory(0);
    resident();
    const Resident found = resident();
    if (found.bytes == 0)
        refuse("this kernel does not count resident pages exactly (no smaps_rollup)");
    return found;
}

std::size_t Random::size(double least, double most) {
    return static_cast<std::size_t>(least * std::exp2(share() * std::log2(most / least)));
}

int serve_task() {
    void* at =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, board_descriptor, 0);
    if (at == MAP_FAILED) return 2;
    Board& board = *static_cast<Board*>(at);
    board_of_all = &board;
    // In place before anything is measured.
    std::memset(static_cast<void*>(board.samples), 0, sizeof board.samples);
    file_of("malloc", board.serving);
    for (const char* function : {"aligned_alloc", "posix_memalign", "calloc", "realloc", "free"}) {
        char file[1024];
        file_of(function, file);
        if (std::strcmp(board.serving, file) == 0) continue;
        std::snprintf(board.other_function, sizeof board.other_function, "%s", function);
        std::memcpy(board.other_file, file, sizeof file);
    }
    void* first = given(1);
    keep(first);
    std::free(first);
    const Task task = board.task;
    work(task, board);
    board.done = 1;
    return 0;
}

}  // namespace assay::alloc
