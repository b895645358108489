// Finds measurements and metrics by name.
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/registry.hpp"

namespace assay {

const Metric& Measurement::metric(std::string_view metric_name) const {
    for (const Metric& m : metrics)
        if (m.name == metric_name) return m;
    throw Error(fmt::format("defect: {} records the undeclared metric {}", name, metric_name),
                "declare it beside the measurement");
}

const Measurement& find_measurement(std::span<const Measurement> table, std::string_view name) {
    std::string names;
    for (const Measurement& m : table) {
        if (m.name == name) return m;
        names += (names.empty() ? "" : ", ") + std::string(m.name);
    }
    throw Error(fmt::format("unknown measurement '{}'", name), "choose one of " + names);
}

}  // namespace assay
