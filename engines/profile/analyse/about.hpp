// What a trace says besides its events.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profile/analyse/python.hpp"
#include "profile/analyse/symbols.hpp"
#include "profile/stack/tree.hpp"
#include "profile/trace/file.hpp"

namespace assay::heap {

// Of the whole process, in pages.
struct Sample {
    std::uint64_t time;  // ticks
    std::int64_t virtual_pages, resident_pages;
};

// Where a thread stood that has touched a page: its instruction, and the last words of its stack.
struct Stand {
    std::uint64_t pc = 0;
    StackWords words{};
    bool operator==(const Stand&) const = default;
};

// A page that was touched for the first time.
struct Touch {
    std::uint64_t time;   // ticks
    std::uint32_t tid;    // the thread as the system numbers it
    std::uint32_t stand;  // number
    std::uint64_t address;
};

struct About {
    Process process{};
    std::string program, rank;       // rank: empty where it is none of an MPI program's processes
    std::optional<double> ran;       // seconds that the process had run when it was attached to
    std::vector<stack::Node> nodes;  // of the stack tree
    std::unordered_map<std::uint32_t, std::string> names;      // of threads, by serial
    std::unordered_map<std::uint32_t, std::uint32_t> threads;  // serial by the system's number
    Python python;
    std::vector<Sample> samples;
    std::vector<Touch> touches;  // in the order of time
    std::vector<Stand> stands;
    bool watched_touches = false;
    std::string mappings;                               // as the last such chunk has them
    std::uint64_t mappings_time = 0;                    // ticks
    std::uint64_t first = ~std::uint64_t{0}, last = 0;  // event, ticks
    std::uint64_t unreadable = 0;                       // chunks

    double seconds_per_tick() const;
    double seconds_at(std::uint64_t ticks) const;
};

// Everything but the events, whose first and last time are looked up; modules go to `symbols`.
About read_about(TraceReader& trace, Symbols& symbols);

}  // namespace assay::heap
