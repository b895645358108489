// Analyses a heap trace in one pass over its events, and writes the result as one JSON object.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "profile/analyse/metadata.hpp"

namespace assay::heap {

// The origin of a trace and the parts that could be read.
struct ReadSummary {
    std::string imported_from;  // the tool that wrote the file; empty for a trace of assay heap
    std::uint64_t bytes = 0;    // of the file
    std::uint64_t damaged_bytes = 0, unreadable_chunks = 0;
    bool cut_off = false;  // the file lacks its end
};

class Analysis {
public:
    // `metadata` and `symbols` must outlive the analysis. An event's stack is an index into
    // `metadata.nodes`.
    Analysis(const TraceMetadata& metadata, Symbols& symbols);
    ~Analysis();
    Analysis(const Analysis&) = delete;
    Analysis& operator=(const Analysis&) = delete;

    void add(std::uint32_t thread, Event event);                     // in time order
    void write_json(const ReadSummary& summary, std::FILE* output);  // throws Error

private:
    struct State;
    std::unique_ptr<State> state_;
};

// Analyses the first `bytes` bytes of the trace file at path `trace`; a program may still append to
// it. Damaged parts are left out and counted in the JSON. Throws Error when the file cannot be
// read.
void analyse(const std::string& trace, std::uint64_t bytes, std::FILE* output);

}  // namespace assay::heap
