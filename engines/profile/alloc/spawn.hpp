// Starting a process on an allocator, and what came of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/statistics.hpp"
#include "profile/alloc/board.hpp"

namespace assay::alloc {

// An allocator as a process is started on it.
struct Allocator {
    std::string name;
    std::string library;                // loaded in front of all others; empty: the C library's own
    std::vector<std::string> settings;  // "NAME=value", of its environment
    bool huge_pages = true;             // false: the kernel gives this process no transparent ones
};

// The samples of one or of several processes.
class Samples {
public:
    void add(const Board&);
    void merge(const Samples&);  // the calls' order statistics are then the other's
    std::vector<double>& of(Series series) { return series_[static_cast<std::size_t>(series)]; }
    Summary calls(Call call) const { return calls_[static_cast<std::size_t>(call)]; }

private:
    std::vector<double> series_[series_count];
    Summary calls_[call_count];
};

// Works one task in a new process. An empty string, or why there are no samples; throws Error where
// something other than the wanted allocator serves malloc, and when interrupted. The process is
// killed after `limit_s`.
std::string work(const Allocator&, const Task&, double limit_s, Samples& into);

// The file whose malloc a process on this allocator calls. Throws Error when it is not that of the
// library.
std::string serving_file(const Allocator&, double limit_s);

}  // namespace assay::alloc
