#include "network/saturation/round.hpp"

#include <fmt/format.h>

#include <set>

#include "core/error.hpp"

namespace assay::network::saturate {
namespace {

constexpr std::size_t size_least = 8,
                      size_most = 1 << 30;  // a flow's messages carry a word that tells the last
constexpr double seconds_most = 3600;

Error wrong(const std::string& what) {
    return Error("not a round of experiments: " + what, "see engines/network/saturation/round.hpp");
}

int read_rank(const Json& value, int ranks) {
    const int rank = value.get<int>();
    if (rank < 0 || rank >= ranks) throw wrong(fmt::format("rank {} of {}", rank, ranks));
    return rank;
}

std::vector<std::pair<int, int>> read_pairs(const Json& list, int ranks) {
    std::vector<std::pair<int, int>> pairs;
    std::set<std::pair<int, int>> seen;
    for (const Json& one : list) {
        if (one.size() != 2) throw wrong("a flow has two ends");
        const std::pair pair{read_rank(one[0], ranks), read_rank(one[1], ranks)};
        if (pair.first == pair.second) throw wrong("a rank does not send to itself");
        if (!seen.insert(pair).second)
            throw wrong(fmt::format("{} to {} is there twice", pair.first, pair.second));
        pairs.push_back(pair);
    }
    if (pairs.empty()) throw wrong("no flow in it");
    return pairs;
}

std::size_t read_size(const Json& value, std::size_t least) {
    const auto size = value.get<std::int64_t>();
    if (size < static_cast<std::int64_t>(least) || size > static_cast<std::int64_t>(size_most))
        throw wrong(fmt::format("a message of {} bytes", size));
    return static_cast<std::size_t>(size);
}

void read_flows(Round& round, const Json& said, int ranks) {
    round.kind = Round::Kind::flows;
    round.pairs = read_pairs(said.at("flows"), ranks);
    round.size = read_size(said.at("size"), size_least);
    round.seconds = said.at("seconds").get<double>();
    if (!(round.seconds > 0 && round.seconds <= seconds_most)) throw wrong("seconds");
}

void read_echo(Round& round, const Json& said, int ranks) {
    round.kind = Round::Kind::echo;
    round.pairs = read_pairs(said.at("echo"), ranks);
    for (const Json& size : said.at("sizes")) round.sizes.push_back(read_size(size, 1));
    round.count = said.at("count").get<std::int64_t>();
    if (round.sizes.empty() || round.count < 1) throw wrong("sizes and count");
}

std::vector<Lane> lanes(const Round& round, int rank, bool leaving) {
    std::vector<Lane> found;
    for (std::size_t flow = 0; flow < round.pairs.size(); ++flow) {
        const auto [source, target] = round.pairs[flow];
        if ((leaving ? source : target) == rank)
            found.push_back({static_cast<int>(flow), leaving ? target : source});
    }
    return found;
}

}  // namespace

std::vector<Lane> Round::leaving(int rank) const { return lanes(*this, rank, true); }
std::vector<Lane> Round::arriving(int rank) const { return lanes(*this, rank, false); }

Round read_round(const std::string& line, int ranks) {
    Round round{};
    try {
        const Json said = Json::parse(line);
        if (said.contains("flows")) read_flows(round, said, ranks);
        else if (said.contains("echo")) read_echo(round, said, ranks);
        else throw wrong("neither flows nor echo");
        round.params = said.value("params", Json::object());
    } catch (const Json::exception& error) {
        throw wrong(error.what());
    }
    return round;
}

}  // namespace assay::network::saturate
