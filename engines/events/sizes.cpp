// Parses the distributions of fragment sizes, and draws sizes from them.
#include "events/sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numbers>
#include <string_view>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/pattern.hpp"
#include "core/text.hpp"

namespace assay::events {
namespace {

constexpr double max_size = 1 << 28;
constexpr double max_deviations = 4;  // standard deviations
constexpr std::array<std::string_view, 4> kinds = {"fixed", "uniform", "normal", "choice"};

std::string quoted(const std::string& text) { return printable(text.substr(0, 40)); }

// The factor of a size's unit: a bare k, m or g is binary as in dd and fio, kB is decimal; NaN for
// others.
double unit_factor(std::string unit) {
    std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::tolower(c); });
    if (unit.empty() || unit == "b") return 1;
    const std::size_t power = std::string_view("kmg").find(unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string::npos || (!rest.empty() && rest != "b" && rest != "i" && rest != "ib"))
        return std::nan("");
    return std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

// A number; with `has_unit` a size such as 4096, 64KiB or 1.5 MB.
double parse_number(const std::string& text, double min, double max, const std::string& where,
                    bool has_unit = false) {
    std::size_t read = 0;
    double value = 0;
    try {
        value = std::stod(text, &read);
    } catch (const std::exception&) {
        read = 0;
    }
    const double factor = has_unit              ? unit_factor(text.substr(read))
                          : read == text.size() ? 1
                                                : std::nan("");
    if (read == 0 || !(value * factor >= min && value * factor <= max))
        throw Error(
            fmt::format("{}: \"{}\" is not a {} from {:.0f} to {:.0f}{}", where, quoted(text),
                        has_unit ? "size" : "number", min, max, has_unit ? " bytes" : ""),
            "write for example: 0-7 fixed 64KiB");
    return value * factor;
}

double parse_integer(const std::string& text, double min, const std::string& where) {
    return std::floor(parse_number(text, min, max_size, where));
}

double parse_size(const std::string& text, double min, const std::string& where) {
    return std::floor(parse_number(text, min, max_size, where, true));
}

std::vector<std::string> fields_of(const std::string& line) {
    std::vector<std::string> fields;
    std::string plain = line.substr(0, line.find('#'));
    std::ranges::replace_if(plain, [](char c) { return c == '\t' || c == '\r'; }, ' ');
    for (std::string& part : split(plain, ' '))
        if (!part.empty()) fields.push_back(std::move(part));
    return fields;
}

// A number in (0, 1) from a uniform distribution, the same for the same arguments. `draw` numbers
// the draws for one fragment.
double uniform(std::uint64_t seed, int source, std::uint64_t event, int draw) {
    const std::uint64_t key = stamp_key(source, draw, event ^ (seed * 0x9e3779b97f4a7c15u));
    return (static_cast<double>(key >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

Sizes Sizes::fixed(std::uint32_t bytes, int sources) {
    Sizes sizes;
    Source source;
    source.kind = Source::Kind::fixed;
    source.a = source.mean = bytes;
    source.largest = bytes;
    sizes.sources_.assign(static_cast<std::size_t>(sources), source);
    return sizes;
}

Sizes::Source Sizes::parse(const std::vector<std::string>& fields, const std::string& where) {
    const auto wrong = [&](const std::string& problem) {
        return Error(where + ": " + problem,
                     "give fixed SIZE, uniform LOW HIGH, normal MEAN DEVIATION, or choice "
                     "SIZE:WEIGHT ...");
    };
    if (fields.size() < 3) throw wrong("a source needs a kind and its sizes");
    Source source;
    const std::string& kind = fields[1];
    const auto expect = [&](std::size_t numbers) {
        if (fields.size() != numbers + 2)
            throw wrong(fmt::format("{} takes {} number(s)", kind, numbers));
    };
    if (kind == "fixed") {
        expect(1);
        source.kind = Source::Kind::fixed;
        source.a = source.mean = parse_size(fields[2], 1, where);
        source.largest = static_cast<std::uint32_t>(source.a);
    } else if (kind == "uniform") {
        expect(2);
        source.kind = Source::Kind::uniform;
        source.a = parse_size(fields[2], 1, where);
        source.b = parse_size(fields[3], source.a, where);
        source.mean = (source.a + source.b) / 2;
        source.largest = static_cast<std::uint32_t>(source.b);
    } else if (kind == "normal") {
        expect(2);
        source.kind = Source::Kind::normal;
        source.a = source.mean = parse_number(fields[2], 1, max_size, where, true);
        source.b = parse_number(fields[3], 0, max_size / (2 * max_deviations), where, true);
        source.largest =
            static_cast<std::uint32_t>(std::floor(source.a + max_deviations * source.b));
    } else if (kind == "choice") {
        source.kind = Source::Kind::choice;
        double total = 0;
        for (std::size_t i = 2; i < fields.size(); ++i) {
            const std::vector<std::string> parts = split(fields[i], ':');
            if (parts.size() != 2)
                throw wrong(fmt::format("\"{}\" is no SIZE:WEIGHT", quoted(fields[i])));
            const auto size = static_cast<std::uint32_t>(parse_size(parts[0], 1, where));
            const double weight = parse_number(parts[1], 0, 1e12, where);
            total += weight;
            source.mean += weight * size;
            source.choices.emplace_back(total, size);
            source.largest = std::max(source.largest, size);
        }
        if (total <= 0) throw wrong("all weights are 0");
        source.mean /= total;
        for (auto& [share, size] : source.choices) share /= total;
    } else {
        throw wrong(fmt::format("\"{}\" is not a kind of sizes", quoted(kind)));
    }
    return source;
}

Sizes Sizes::read(std::string_view text, const std::string& file, int sources, std::uint64_t seed) {
    Sizes sizes;
    sizes.seed_ = seed;
    sizes.sources_.resize(static_cast<std::size_t>(sources));
    Source rest;
    int line_number = 0;
    for (const std::string& line : split(text, '\n')) {
        const std::string where = fmt::format("{}, line {}", file, ++line_number);
        const std::vector<std::string> fields = fields_of(line);
        if (fields.empty()) continue;
        if (std::ranges::find(kinds, fields[0]) != kinds.end()) {
            const std::string sizes_given = quoted(fmt::format("{}", fmt::join(fields, " ")));
            throw Error(fmt::format("{}: no sources before \"{}\"", where, sizes_given),
                        fmt::format("write whose sizes they are: 0-7 {0}, or * {0} for all others",
                                    sizes_given));
        }
        const Source source = parse(fields, where);
        if (fields[0] == "*") {
            if (rest.kind != Source::Kind::none)
                throw Error(where + ": * is given a second time", "give it once");
            rest = source;
            continue;
        }
        for (const std::string& range : split(fields[0], ',')) {
            const std::vector<std::string> ends = split(range, '-');
            if (ends.size() > 2)
                throw Error(fmt::format("{}: \"{}\" is not a range", where, quoted(range)),
                            "write for example 0-7");
            const double first = parse_integer(ends.front(), 0, where),
                         last = parse_integer(ends.back(), first, where);
            if (last >= sources)
                throw Error(fmt::format("{}: there is no source {}", where, last),
                            fmt::format("give 0 to {}", sources - 1));
            for (auto i = static_cast<std::size_t>(first); i <= static_cast<std::size_t>(last);
                 ++i) {
                if (sizes.sources_[i].kind != Source::Kind::none)
                    throw Error(fmt::format("{}: source {} is given a second time", where, i),
                                "give each source once");
                sizes.sources_[i] = source;
            }
        }
    }
    for (std::size_t i = 0; i < sizes.sources_.size(); ++i) {
        if (sizes.sources_[i].kind != Source::Kind::none) continue;
        if (rest.kind == Source::Kind::none)
            throw Error(fmt::format("{}: no sizes for source {}", file, i),
                        "add its line, or one for all others: * fixed 4096");
        sizes.sources_[i] = rest;
    }
    return sizes;
}

std::uint32_t Sizes::fragment_bytes(int source, std::uint64_t event) const {
    const Source& s = distribution(source);
    switch (s.kind) {
        case Source::Kind::none:
        case Source::Kind::fixed: return s.largest;
        case Source::Kind::uniform:
            return static_cast<std::uint32_t>(
                s.a + std::floor((s.b - s.a + 1) * uniform(seed_, source, event, 0)));
        case Source::Kind::normal: {  // Box and Muller 1958
            const double radius = std::sqrt(-2 * std::log(uniform(seed_, source, event, 0)));
            const double z =
                radius * std::cos(2 * std::numbers::pi * uniform(seed_, source, event, 1));
            const double size = s.a + s.b * std::clamp(z, -max_deviations, max_deviations);
            return static_cast<std::uint32_t>(std::max(1.0, std::floor(size)));
        }
        case Source::Kind::choice: break;
    }
    const double share = uniform(seed_, source, event, 0);
    for (const auto& [end, size] : s.choices)
        if (share < end) return size;
    return s.choices.back().second;
}

}  // namespace assay::events
