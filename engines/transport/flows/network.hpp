// The network of the flow transport: a host for each rank, directed links, and the route of each
// pair of hosts. It is a text file, which assay/launch/flows.py writes from a platform:
//
//     assay-flows 1
//     hosts N          then N lines: the name of a host
//     links L          then L lines: rate (B/s) and latency (s)
//     routes           then N * N lines, by source and destination: the numbers of the links
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"

namespace assay::flows {

class Network {
public:
    struct Link {
        double rate, latency;  // B/s, s
    };

    // Throws Error for a file that is not one.
    static Network read(const std::string& path);

    int size() const { return static_cast<int>(hosts.size()); }
    std::span<const std::int32_t> route(int from, int to) const {
        const std::size_t pair = index(from, to);
        return {route_links.data() + route_begin[pair], route_begin[pair + 1] - route_begin[pair]};
    }
    Nanoseconds latency(int from, int to) const;
    double rate(int from, int to) const;  // of the slowest link of the route
    // The part of a shared link that a flow takes, relative to others. It is SimGrid's: inverse to
    // the sum of each link's latency and of the time of 8775 bytes on it (Velho et al. 2013,
    // doi:10.1145/2517448; network/weight-S of its SMPI model).
    double weight(int from, int to) const;

    std::vector<std::string> hosts;  // by rank
    std::vector<Link> links;
    std::vector<std::int32_t> route_links;
    std::vector<std::size_t> route_begin;  // by source and destination, and the end

private:
    std::size_t index(int from, int to) const {
        return static_cast<std::size_t>(from) * hosts.size() + static_cast<std::size_t>(to);
    }
};

}  // namespace assay::flows
