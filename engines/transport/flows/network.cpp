// Reads the network of the flow transport (see network.hpp).
#include "transport/flows/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "core/error.hpp"

namespace assay::flows {
namespace {

constexpr double weight_bytes = 8775;  // network/weight-S of SimGrid's SMPI model
constexpr std::size_t max_hosts = 4096, max_links = 1'000'000;

class Reader {
public:
    explicit Reader(const std::string& path) : path_(path), file_(path) {
        if (!file_) throw Error(path + ": cannot be read", "give it with 'assay simulate --flows'");
    }
    [[noreturn]] void fail(const std::string& problem) const {
        throw Error(fmt::format("{}, line {}: {}", path_, number_, problem),
                    "write it again with 'assay simulate --flows'");
    }
    std::string line() {
        std::string text;
        ++number_;
        if (!std::getline(file_, text)) fail("the file ends here");
        return text;
    }
    void expect(const std::string& text) {
        if (line() != text) fail(fmt::format("\"{}\" is expected", text));
    }
    std::size_t count(const std::string& name, std::size_t max) {
        std::istringstream fields(line());
        std::string first;
        std::size_t value = 0;
        if (!(fields >> first >> value) || first != name || value < 1 || value > max)
            fail(fmt::format("\"{}\" and a number up to {} are expected", name, max));
        return value;
    }

private:
    std::string path_;
    std::ifstream file_;
    std::size_t number_ = 0;
};

Network::Link read_link(Reader& reader) {
    std::istringstream fields(reader.line());
    Network::Link link{};
    if (!(fields >> link.rate >> link.latency) || !(link.rate > 0) || !(link.latency >= 0) ||
        !std::isfinite(link.rate) || !std::isfinite(link.latency))
        reader.fail("a rate and a latency are expected");
    return link;
}

void read_route(Reader& reader, Network& network, bool to_itself) {
    std::istringstream fields(reader.line());
    network.route_begin.push_back(network.route_links.size());
    for (std::int64_t link = 0; fields >> link;) {
        if (link < 0 || link >= static_cast<std::int64_t>(network.links.size()))
            reader.fail(fmt::format("there is no link {}", link));
        network.route_links.push_back(static_cast<std::int32_t>(link));
    }
    if (!fields.eof()) reader.fail("numbers of links are expected");
    if (to_itself != (network.route_begin.back() == network.route_links.size()))
        reader.fail(to_itself ? "a route from a host to itself" : "two hosts without a route");
}

}  // namespace

Network Network::read(const std::string& path) {
    Reader reader(path);
    Network network;
    reader.expect("assay-flows 1");
    const std::size_t hosts = reader.count("hosts", max_hosts);
    for (std::size_t i = 0; i < hosts; ++i) network.hosts.push_back(reader.line());
    const std::size_t links = reader.count("links", max_links);
    for (std::size_t i = 0; i < links; ++i) network.links.push_back(read_link(reader));
    reader.expect("routes");
    for (std::size_t pair = 0; pair < hosts * hosts; ++pair)
        read_route(reader, network, pair / hosts == pair % hosts);
    network.route_begin.push_back(network.route_links.size());
    return network;
}

Nanoseconds Network::latency(int from, int to) const {
    double sum = 0;
    for (const std::int32_t link : route(from, to))
        sum += links[static_cast<std::size_t>(link)].latency;
    return std::llround(sum * 1e9);
}

double Network::rate(int from, int to) const {
    double slowest = std::numeric_limits<double>::infinity();
    for (const std::int32_t link : route(from, to))
        slowest = std::min(slowest, links[static_cast<std::size_t>(link)].rate);
    return slowest;
}

double Network::weight(int from, int to) const {
    double penalty = 0;
    for (const std::int32_t number : route(from, to)) {
        const Link& link = links[static_cast<std::size_t>(number)];
        penalty += link.latency + weight_bytes / link.rate;
    }
    return 1 / penalty;
}

}  // namespace assay::flows
