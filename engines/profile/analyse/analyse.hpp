// A trace read from its beginning to its end, and told as one JSON object.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "profile/analyse/about.hpp"

namespace assay::heap {

// How a trace was read.
struct Reading {
    std::string source;  // another tool, whose file it was; empty for a trace of our own
    std::uint64_t bytes = 0, damaged = 0, unreadable = 0;
};

class Analysis {
public:
    // Both must live as long; stacks are named by the numbers of about's nodes.
    Analysis(const About& about, Symbols& symbols);
    ~Analysis();
    Analysis(const Analysis&) = delete;
    Analysis& operator=(const Analysis&) = delete;

    void add(std::uint32_t thread, Event event);  // in the order of time
    void tell(const Reading& reading, std::FILE* to);

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

// Of a trace that is still being written, the first `bytes`. Throws Error when there is nothing to
// read. What is damaged is left out, and said in the object.
void analyse(const std::string& trace, std::uint64_t bytes, std::FILE* to);

}  // namespace assay::heap
