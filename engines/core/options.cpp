// Parses and checks the options of a measurement with CLI11.
#include "core/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/error.hpp"
#include "core/text.hpp"

namespace assay {
namespace {

std::string option_name(const Parameter& parameter) {
    std::string name(parameter.name);
    std::ranges::replace(name, '_', '-');
    return "--" + name;
}

double parse_number(const Parameter& parameter, std::string text) {
    const std::string value_text = fmt::format("{} {}", option_name(parameter), text);
    double value = 0;
    try {
        if (parameter.unit == "B") {
            const std::string problem = CLI::AsSizeValue(false)(text);  // replaces 64KiB by 65536
            if (!problem.empty()) throw std::invalid_argument(problem);
        }
        std::size_t read = 0;
        value = std::stod(text, &read);
        if (read != text.size()) throw std::invalid_argument(text);
        if (parameter.kind != Kind::real && value != std::floor(value))
            throw std::invalid_argument(text);
    } catch (const std::exception&) {
        throw Error(
            value_text + ": not a " + (parameter.kind == Kind::real ? "number" : "whole number"),
            std::string(parameter.help));
    }
    if (value < parameter.min || value > parameter.max)
        throw Error(value_text + ": out of bounds",
                    fmt::format("give {} to {}", parameter.min, parameter.max));
    return value;
}

// The canonical text of a valid value: numbers in SI base units. Throws Error for others.
std::string canonical(const Parameter& parameter, const std::string& text) {
    switch (parameter.kind) {
        case Kind::text:
        case Kind::flag: return text;
        case Kind::integer: return fmt::format("{:.0f}", parse_number(parameter, text));
        case Kind::real: return fmt::format("{}", parse_number(parameter, text));
        case Kind::integers: break;
    }
    std::string joined;
    for (const std::string& part : split(text, ','))
        joined +=
            (joined.empty() ? "" : ",") + fmt::format("{:.0f}", parse_number(parameter, part));
    return joined;
}

}  // namespace

Options Options::parse(const Measurement& measurement, std::vector<std::string> arguments) {
    CLI::App app{std::string(measurement.help)};
    app.set_help_flag();
    std::map<std::string_view, std::string> texts;
    std::map<std::string_view, bool> flags;
    for (const Parameter& p : measurement.parameters) {
        if (p.kind == Kind::flag) {
            app.add_flag(option_name(p), flags[p.name], std::string(p.help));
        } else {
            texts[p.name] = p.default_value;
            app.add_option(option_name(p), texts[p.name], std::string(p.help));
        }
    }
    std::ranges::reverse(arguments);  // CLI11 reads them from the back
    try {
        app.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
        throw Error(fmt::format("{}: {}", measurement.name, error.what()),
                    "assay-probe --describe lists the options");
    }
    Options options;
    for (const Parameter& p : measurement.parameters) {
        std::string& value = options.values_[std::string(p.name)];
        if (p.kind == Kind::flag) value = flags[p.name] ? "1" : "";
        else if (!texts[p.name].empty()) value = canonical(p, texts[p.name]);
    }
    return options;
}

const std::string& Options::text(std::string_view name) const {
    const auto entry = values_.find(name);
    if (entry == values_.end()) throw Error(fmt::format("defect: undeclared parameter {}", name));
    return entry->second;
}

std::int64_t Options::integer(std::string_view name) const { return std::stoll(text(name)); }
double Options::real(std::string_view name) const { return std::stod(text(name)); }
bool Options::flag(std::string_view name) const { return !text(name).empty(); }

std::vector<std::int64_t> Options::integers(std::string_view name) const {
    std::vector<std::int64_t> values;
    if (text(name).empty()) return values;
    for (const std::string& part : split(text(name), ',')) values.push_back(std::stoll(part));
    return values;
}

}  // namespace assay
