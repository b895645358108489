// The values of a measurement's parameters: parsed from the command line (CLI11), with the defaults
// and bounds of the measurement's descriptor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.hpp"

namespace assay {

class Options {
public:
    // `arguments`: "--size", "64KiB", "--repeats", "3". Throws Error for an unknown option, an
    // unreadable value, or one out of the parameter's bounds.
    static Options parse(const Measurement& measurement, std::vector<std::string> arguments);

    std::int64_t integer(std::string_view name) const;
    double real(std::string_view name) const;
    bool flag(std::string_view name) const;
    const std::string& text(std::string_view name) const;
    std::vector<std::int64_t> integers(std::string_view name) const;

private:
    std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace assay
