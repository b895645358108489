// Reads and checks a file of exchange steps.
#include "core/steps.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "core/error.hpp"

namespace assay {
namespace {

constexpr std::size_t max_steps = 1U << 20U;
constexpr int idle = -1;  // the destination of a rank that does not send
constexpr std::string_view expected_format =
    "write each step as a line with the destination of each rank, -1 for none: 1 2 0";

std::vector<int> parse_destinations(const std::string& line, const std::string& location) {
    std::istringstream tokens(line.substr(0, line.find('#')));
    std::vector<int> targets;
    for (std::string token; tokens >> token;) {
        int value = 0;
        const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
        if (error != std::errc() || end != token.data() + token.size())
            throw Error(fmt::format("{}: not a list of ranks", location),
                        std::string(expected_format));
        targets.push_back(value);
    }
    return targets;
}

void check_step(std::vector<int>& step, int ranks, const std::string& location) {
    if (step.size() != static_cast<std::size_t>(ranks))
        throw Error(fmt::format("{}: {} destinations for {} ranks", location, step.size(), ranks),
                    "make the schedule for these hosts");
    std::set<int> receivers;
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
        int& to = step[rank];
        if (to < idle || to >= ranks)
            throw Error(fmt::format("{}: there is no rank {} among {}", location, to, ranks));
        if (to == static_cast<int>(rank)) to = idle;
        if (to != idle && !receivers.insert(to).second)
            throw Error(fmt::format("{}: rank {} receives from two ranks", location, to),
                        "give each receiver one sender in a step");
    }
}

}  // namespace

std::vector<std::vector<int>> read_steps(const std::string& path, int ranks) {
    struct stat file_status{};
    if (stat(path.c_str(), &file_status) != 0 || !S_ISREG(file_status.st_mode))
        throw Error(fmt::format("cannot read the schedule {}: no such file on this host", path),
                    "put it where every host can read it");
    std::ifstream file(path);
    std::vector<std::vector<int>> steps;
    std::size_t line_number = 0, flows = 0;
    for (std::string line; std::getline(file, line);) {
        const std::string location = fmt::format("{}:{}", path, ++line_number);
        std::vector<int> step = parse_destinations(line, location);
        if (step.empty()) continue;
        check_step(step, ranks, location);
        for (const int to : step) flows += to == idle ? 0 : 1;
        if (steps.size() == max_steps)
            throw Error(fmt::format("{}: more than {} steps", location, max_steps));
        steps.push_back(std::move(step));
    }
    if (flows == 0)
        throw Error(fmt::format("{}: no flow in the schedule", path), std::string(expected_format));
    return steps;
}

}  // namespace assay
