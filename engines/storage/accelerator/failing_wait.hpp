// When a rank stops waiting for nodes that cannot write a file.
#pragma once

#include <cstdint>
#include <map>

namespace assay::storage {

// A wait for other nodes' writes, some of which may fail. A node repeats a failed write once or
// twice a second, but on busy processors a retry may come later than any time that one would wait:
// so it is a retry that ends a wait, and not time alone. Times are in ns of one clock.
class FailingWait {
public:
    // The limit if a node does not even retry.
    static constexpr std::uint64_t longest_ns = 60'000'000'000;

    // `shortest_ns`: the time that passes before a wait is given up.
    FailingWait(std::uint64_t begin, std::uint64_t shortest_ns)
        : begin_(begin), shortest_ns_(shortest_ns) {}

    // Whether the wait is given up at `now`. `failing`: how often each node that cannot write has
    // retried so far. A wait without such a node is never given up.
    bool is_over(std::uint64_t now, const std::map<int, std::uint64_t>& failing) {
        const bool is_vain = have_retried(failing);
        if (failing.empty()) return false;
        const std::uint64_t waited = now - begin_;
        return (is_vain && waited >= shortest_ns_) || waited >= longest_ns;
    }

private:
    // Whether each of the nodes has retried in vain since it was seen here first. The retry that
    // ran at that time may have come too early; the next one is the first to tell.
    bool have_retried(const std::map<int, std::uint64_t>& failing) {
        bool have = true;
        for (const auto& [node, retries] : failing)
            have &= retries >= first_.try_emplace(node, retries).first->second + 2;
        return have;
    }

    std::uint64_t begin_, shortest_ns_;
    std::map<int, std::uint64_t> first_;  // retries of a node when it was seen first
};

}  // namespace assay::storage
