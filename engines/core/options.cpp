#include "core/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.hpp"

namespace assay {
namespace {

std::string option_name(const Parameter& parameter) {
    std::string name(parameter.name);
    std::ranges::replace(name, '_', '-');
    return "--" + name;
}

double number(const Parameter& parameter, std::string text) {
    const std::string where = fmt::format("{} {}", option_name(parameter), text);
    double value = 0;
    try {
        if (parameter.unit == "B") {
            const std::string refused = CLI::AsSizeValue(false)(text);  // in place: 64KiB -> 65536
            if (!refused.empty()) throw std::invalid_argument(refused);
        }
        std::size_t read = 0;
        value = std::stod(text, &read);
        if (read != text.size()) throw std::invalid_argument(text);
        if (parameter.kind != Kind::real && value != std::floor(value))
            throw std::invalid_argument(text);
    } catch (const std::exception&) {
        throw Error(where + ": not a " + (parameter.kind == Kind::real ? "number" : "whole number"),
                    std::string(parameter.help));
    }
    if (value < parameter.min || value > parameter.max)
        throw Error(where + ": out of bounds",
                    fmt::format("from {} to {}", parameter.min, parameter.max));
    return value;
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

// The canonical text of a value, checked: numbers in SI base units.
std::string checked(const Parameter& parameter, const std::string& text) {
    switch (parameter.kind) {
        case Kind::text:
        case Kind::flag: return text;
        case Kind::integer: return fmt::format("{:.0f}", number(parameter, text));
        case Kind::real: return fmt::format("{}", number(parameter, text));
        case Kind::integers: break;
    }
    std::string joined;
    for (const std::string& part : split(text))
        joined += (joined.empty() ? "" : ",") + fmt::format("{:.0f}", number(parameter, part));
    return joined;
}

}  // namespace

Options Options::parse(const Measurement& measurement, std::vector<std::string> words) {
    CLI::App app{std::string(measurement.help)};
    app.set_help_flag();
    std::map<std::string_view, std::string> texts;
    std::map<std::string_view, bool> flags;
    for (const Parameter& p : measurement.parameters) {
        if (p.kind == Kind::flag) {
            app.add_flag(option_name(p), flags[p.name], std::string(p.help));
        } else {
            texts[p.name] = p.initial;
            app.add_option(option_name(p), texts[p.name], std::string(p.help));
        }
    }
    std::ranges::reverse(words);  // CLI11 takes them from the back
    try {
        app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {
        throw Error(fmt::format("{}: {}", measurement.name, error.what()), "see --describe");
    }
    Options options;
    for (const Parameter& p : measurement.parameters) {
        std::string& value = options.values_[std::string(p.name)];
        if (p.kind == Kind::flag) value = flags[p.name] ? "1" : "";
        else if (!texts[p.name].empty()) value = checked(p, texts[p.name]);
    }
    return options;
}

const std::string& Options::text(std::string_view name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw Error(fmt::format("defect: undeclared parameter {}", name));
    return found->second;
}

std::int64_t Options::integer(std::string_view name) const { return std::stoll(text(name)); }
double Options::real(std::string_view name) const { return std::stod(text(name)); }
bool Options::flag(std::string_view name) const { return !text(name).empty(); }

std::vector<std::int64_t> Options::integers(std::string_view name) const {
    std::vector<std::int64_t> values;
    for (const std::string& part : split(text(name))) values.push_back(std::stoll(part));
    return values;
}

}  // namespace assay
