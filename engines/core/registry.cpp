#include <fmt/format.h>

#include "core/error.hpp"
#include "core/registry.hpp"

namespace assay {

const Metric& Measurement::metric(std::string_view wanted) const {
    for (const Metric& m : metrics)
        if (m.name == wanted) return m;
    throw Error(fmt::format("defect: {} emits the undeclared metric {}", name, wanted),
                "declare it beside the measurement");
}

const Measurement& find_measurement(std::string_view name) {
    std::string known;
    for (const Measurement& m : measurements()) {
        if (m.name == name) return m;
        known += (known.empty() ? "" : ", ") + std::string(m.name);
    }
    throw Error(fmt::format("no measurement is called '{}'", name), "there are: " + known);
}

}  // namespace assay
