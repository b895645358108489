// What a trace says of Python: which functions at which lines its frames are, and which C frames
// run them.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profile/analyse/symbols.hpp"

namespace assay::heap {

struct Python {
    std::unordered_map<std::uint32_t, Place> places;  // by the number that frames name
    std::unordered_set<std::uint64_t> evals;  // addresses of C frames that run Python frames
    std::string unread;  // version of an interpreter whose frames were not understood; empty: none
    // Stacks that events name; others are only on the way to some. Empty where there is no Python:
    // then any may be named.
    std::vector<bool> named;

    bool is_there() const { return !places.empty(); }
    // Lines as heap/python.hpp has them.
    void read(const std::string& text);
};

}  // namespace assay::heap
