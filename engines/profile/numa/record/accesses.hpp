// The sampled accesses of a process: by object, stack, thread and nodes, by the sixteenth of the
// block that they hit, and by what answered them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "profile/numa/format/lines.hpp"
#include "profile/numa/record/data_source.hpp"
#include "profile/numa/record/slices.hpp"

namespace assay::numa {

inline constexpr int no_object = -1;  // of a sample without an address

struct SampledAccess {
    int object;
    std::uint32_t stack, thread;
    int thread_node;
    std::uint64_t page;
    int part;  // of its block, 0 to 15
    DataSource source;
    std::uint64_t ns;
};

class Accesses {
public:
    // Kept until the node of its page is known.
    void add(const SampledAccess& access) { waiting_.push_back(access); }
    std::vector<std::uint64_t> waiting_pages() const;  // each once
    // `node_of` a page: -1 where it is not known.
    void count(const std::function<int(std::uint64_t)>& node_of, Slices& slices);
    bool empty() const { return counts_.empty(); }

    // Writes the rows "access" and "part". Stacks have the number 1 more than here.
    void write(Lines& lines) const;
    const std::array<std::uint64_t, servers>& served() const { return served_; }

private:
    struct Count {
        std::uint64_t loads = 0, stores = 0;
    };
    // object, stack, thread, node of the thread, node of the page
    std::map<std::tuple<int, std::uint32_t, std::uint32_t, int, int>, Count> counts_;
    // object, part, thread, node of the thread, node of the page
    std::map<std::tuple<int, int, std::uint32_t, int, int>, std::uint64_t> parts_;
    std::array<std::uint64_t, servers> served_{};
    std::vector<SampledAccess> waiting_;
};

}  // namespace assay::numa
