// Starts processes on an allocator and collects their results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "profile/alloc/shared_results.hpp"

namespace assay::alloc {

// An allocator, and the settings with which a process is started on it.
struct Allocator {
    std::string name;
    std::string library;                // to preload; empty: the C library's allocator
    std::vector<std::string> settings;  // environment variables "NAME=value"
    bool huge_pages = true;             // false: transparent huge pages are disabled
};

// The samples of one or several processes.
class Samples {
public:
    void add(const SharedResults&);
    void merge(const Samples&);  // copies the order statistics of calls from the other
    std::vector<double>& series(Series series) { return series_[static_cast<std::size_t>(series)]; }
    Summary calls(Call call) const { return calls_[static_cast<std::size_t>(call)]; }

private:
    std::vector<double> series_[series_count];
    Summary calls_[call_count];
};

// Runs a task in a new process, which is killed after `limit_s`. Returns the reason if there
// are no samples, else an empty string. Throws Error if another library serves malloc, or on an
// interrupt.
std::string run_task(const Allocator&, const Task&, double limit_s, Samples& samples);

// The path of the object whose malloc a process on this allocator calls. Throws Error when it is
// not the allocator's library.
std::string find_malloc_library(const Allocator&, double limit_s);

}  // namespace assay::alloc
