// Reads and checks one round of the saturation experiments.
#include "network/saturation/round.hpp"

#include <fmt/format.h>

#include <set>

#include "core/error.hpp"

namespace assay::network::saturate {
namespace {

// Bytes of a message. The first 8 bytes of a flow's message tell data from the end of the flow
// (flows.cpp). The first byte of a ping-pong message marks the last one (ping_pong.cpp).
constexpr std::size_t min_flow_size = 8, min_ping_pong_size = 1, max_size = 1 << 30;
constexpr double max_round_seconds = 3600, max_pause = 10;

Error invalid_round(const std::string& reason) {
    return Error("not a round of experiments: " + reason,
                 R"(write it as {"flows": [[0,1]], "size": 1048576, "seconds": 0.5} or )"
                 R"({"ping_pong": [[0,1]], "sizes": [1,1024], "count": 20})");
}

int read_rank(const Json& value, int ranks) {
    const int rank = value.get<int>();
    if (rank < 0 || rank >= ranks) throw invalid_round(fmt::format("rank {} of {}", rank, ranks));
    return rank;
}

std::vector<std::pair<int, int>> read_pairs(const Json& list, int ranks) {
    std::vector<std::pair<int, int>> pairs;
    std::set<std::pair<int, int>> listed;
    for (const Json& item : list) {
        if (item.size() != 2) throw invalid_round("a pair is two ranks, e.g. [0,4]");
        const std::pair pair{read_rank(item[0], ranks), read_rank(item[1], ranks)};
        if (pair.first == pair.second) throw invalid_round("a rank does not send to itself");
        if (!listed.insert(pair).second)
            throw invalid_round(fmt::format("{} to {} is listed twice", pair.first, pair.second));
        pairs.push_back(pair);
    }
    if (pairs.empty()) throw invalid_round("no pair is listed");
    return pairs;
}

std::size_t read_size(const Json& value, std::size_t minimum) {
    const auto size = value.get<std::int64_t>();
    if (size < static_cast<std::int64_t>(minimum) || size > static_cast<std::int64_t>(max_size))
        throw invalid_round(
            fmt::format("a message of {} bytes, expected {} to {}", size, minimum, max_size));
    return static_cast<std::size_t>(size);
}

void read_flows(Round& round, const Json& json, int ranks) {
    round.kind = Round::Kind::flows;
    round.pairs = read_pairs(json.at("flows"), ranks);
    round.size = read_size(json.at("size"), min_flow_size);
    round.seconds = json.at("seconds").get<double>();
    if (!(round.seconds > 0 && round.seconds <= max_round_seconds))
        throw invalid_round("seconds must be above 0 and at most 3600");
}

// Pairs that run one after the other, with all sizes.
void read_by_pair(Round& round, Round::Kind kind, const Json& pairs, const Json& json, int ranks) {
    round.kind = kind;
    round.pairs = read_pairs(pairs, ranks);
    for (const Json& size : json.at("sizes"))
        round.sizes.push_back(read_size(size, min_ping_pong_size));
    round.count = json.at("count").get<std::int64_t>();
    if (round.sizes.empty() || round.count < 1)
        throw invalid_round("ping_pong and calls need sizes, and a count above 0");
    if (kind != Round::Kind::calls) return;
    round.pauses = json.at("pauses").get<std::vector<double>>();
    if (round.pauses.size() != round.sizes.size())
        throw invalid_round("calls need a pause for each size");
    for (const double pause : round.pauses)
        if (!(pause > 0 && pause <= max_pause))
            throw invalid_round(
                fmt::format("a pause of {} s, expected up to {}", pause, max_pause));
}

std::vector<FlowEnd> flow_ends(const Round& round, int rank, bool outgoing) {
    std::vector<FlowEnd> ends;
    for (std::size_t flow = 0; flow < round.pairs.size(); ++flow) {
        const auto [source, target] = round.pairs[flow];
        if ((outgoing ? source : target) == rank)
            ends.push_back({static_cast<int>(flow), outgoing ? target : source});
    }
    return ends;
}

}  // namespace

std::vector<FlowEnd> Round::outgoing(int rank) const { return flow_ends(*this, rank, true); }
std::vector<FlowEnd> Round::incoming(int rank) const { return flow_ends(*this, rank, false); }

Round read_round(const std::string& line, int ranks) {
    Round round{};
    try {
        const Json json = Json::parse(line);
        if (json.contains("flows")) read_flows(round, json, ranks);
        else if (json.contains("ping_pong"))
            read_by_pair(round, Round::Kind::ping_pong, json["ping_pong"], json, ranks);
        else if (json.contains("calls"))
            read_by_pair(round, Round::Kind::calls, json["calls"], json, ranks);
        else throw invalid_round("it has neither flows nor ping_pong nor calls");
        round.params = json.value("params", Json::object());
    } catch (const Json::exception& error) {
        throw invalid_round(error.what());
    }
    return round;
}

}  // namespace assay::network::saturate
