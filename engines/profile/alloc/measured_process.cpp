// Runs one task in the measured process and reports through shared memory.
#include "profile/alloc/measured_process.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "machine/available_memory.hpp"

namespace assay::alloc {
namespace {

// Finds the path of the object that defines a function which this process calls.
void find_function_library(const char* function, char (&path)[1024]) {
    Dl_info info;
    void* address = dlsym(RTLD_DEFAULT, function);
    const char* name = address != nullptr && dladdr(address, &info) != 0 ? info.dli_fname : "";
    std::snprintf(path, sizeof path, "%s", name);
}

void run_task(const Task& task, SharedResults& results) {
    switch (task.kind) {
        case TaskKind::check: break;
        case TaskKind::cycle: return run_cycle(task, results);
        case TaskKind::first_batch: return run_first_batch(task, results);
        case TaskKind::retention: return run_retention(task, results);
        case TaskKind::churn: return run_churn(task, results);
        case TaskKind::handover: return run_handover(task, results);
        case TaskKind::mixed: return run_mixed(task, results);
        case TaskKind::replay: return run_replay(task, results);
    }
}

SharedResults* process_results = nullptr;

}  // namespace

void waive(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(process_results->waived_reason, sizeof process_results->waived_reason, format,
                   arguments);
    va_end(arguments);
    // May be called in any thread. Runs no destructors and exit handlers.
    _exit(1);
}

void check_memory(std::size_t bytes) {
    constexpr std::size_t margin = 128 << 20;
    const std::uint64_t available = available_memory();
    if (available < bytes + margin)
        waive("%zu MB more do not fit into memory: %zu MB are left", bytes / 1'000'000,
              static_cast<std::size_t>(available / 1'000'000));
}

ResidentMemory resident_at_start() {
    check_memory(/*bytes=*/0);
    resident_memory();
    const ResidentMemory memory = resident_memory();
    if (memory.bytes == 0)
        waive("this kernel does not count resident pages exactly (no smaps_rollup)");
    return memory;
}

std::size_t Random::log_uniform(double min, double max) {
    return static_cast<std::size_t>(min * std::exp2(uniform() * std::log2(max / min)));
}

int serve_task() {
    void* memory = mmap(nullptr, sizeof(SharedResults), PROT_READ | PROT_WRITE, MAP_SHARED,
                        results_descriptor, 0);
    if (memory == MAP_FAILED) return 2;
    SharedResults& results = *static_cast<SharedResults*>(memory);
    process_results = &results;
    // Makes the pages resident before the measurement.
    std::memset(static_cast<void*>(results.samples), 0, sizeof results.samples);
    find_function_library("malloc", results.malloc_library);
    for (const char* function : {"aligned_alloc", "posix_memalign", "calloc", "realloc", "free"}) {
        char library[1024];
        find_function_library(function, library);
        if (std::strcmp(results.malloc_library, library) == 0) continue;
        std::snprintf(results.other_function, sizeof results.other_function, "%s", function);
        std::memcpy(results.other_library, library, sizeof library);
    }
    void* block = must_malloc(1);
    do_not_optimize(block);
    std::free(block);
    const Task task = results.task;
    run_task(task, results);
    results.done = 1;
    return 0;
}

}  // namespace assay::alloc
