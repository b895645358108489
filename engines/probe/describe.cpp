// Writes the table of measurements and the known facts as JSON.
#include "probe/describe.hpp"

#include "core/facts.hpp"

namespace assay {
namespace {

const char* name_of(Scope scope) {
    switch (scope) {
        case Scope::node: return "node";
        case Scope::pair: return "pair";
        case Scope::group: break;
    }
    return "group";
}

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::integer: return "integer";
        case Kind::real: return "real";
        case Kind::text: return "text";
        case Kind::flag: return "flag";
        case Kind::integers: break;
    }
    return "integers";
}

const char* name_of(Better better) {
    return better == Better::higher ? "higher" : better == Better::lower ? "lower" : "none";
}

Json describe_measurement(const Measurement& m) {
    Json j = {{"name", m.name}, {"scope", name_of(m.scope)}, {"help", m.help}};
    j["parameters"] = Json::array();
    for (const Parameter& p : m.parameters)
        j["parameters"].push_back({{"name", p.name},
                                   {"kind", name_of(p.kind)},
                                   {"unit", p.unit},
                                   {"default", p.default_value},
                                   {"help", p.help},
                                   {"min", p.min},
                                   {"max", p.max}});
    j["metrics"] = Json::array();
    for (const Metric& metric : m.metrics)
        j["metrics"].push_back({{"name", metric.name},
                                {"unit", metric.unit},
                                {"better", name_of(metric.better)},
                                {"help", metric.help}});
    const auto reason = m.waived();
    j["waived"] = reason ? Json(*reason) : Json(nullptr);
    return j;
}

}  // namespace

Json describe(std::span<const Measurement> table) {
    Json j = {{"schema", schema_version}, {"version", ASSAY_VERSION}};
    j["measurements"] = Json::array();
    for (const Measurement& m : table) j["measurements"].push_back(describe_measurement(m));
    j["facts"] = Json::array();
    for (const Fact& fact : known_facts())
        j["facts"].push_back({{"name", fact.name}, {"unit", fact.unit}, {"help", fact.help}});
    return j;
}

}  // namespace assay
