// What a measurement is: its name, scope, parameters, metrics, and the function that measures.
//
// The table of all measurements (probe/registry.cpp) is an explicit constexpr array: objects that
// register themselves in static initialisers get dropped by linkers. Everything that Python, the
// documentation and the records say of a measurement comes from these descriptors (--describe), so
// that nothing is declared twice.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace assay {

class Options;
class Sink;
class Transport;

enum class Scope { node, pair, group };
enum class Kind { integer, real, text, flag, integers };  // integers: "1,2,4"
enum class Better { higher, lower, none };

struct Parameter {
    std::string_view name;  // as an option: "--" + name, '_' as '-'
    Kind kind;
    std::string_view unit;     // "B" also reads 64KiB; "" for none
    std::string_view initial;  // the default, as it would be typed; "" for none
    std::string_view help;
    double min = 0;
    double max = 9e18;
};

struct Metric {
    std::string_view name;
    std::string_view unit;
    Better better;
    std::string_view help;
};

// What a measurement works with. `transport` connects the ranks of a group; a node measurement runs
// on rank 0 of each host and does not use it.
struct Bench {
    Sink& sink;
    Transport& transport;
};

struct Measurement {
    std::string_view name;
    Scope scope;
    std::string_view help;
    std::span<const Parameter> parameters;
    std::span<const Metric> metrics;
    std::optional<std::string> (*waived)();  // the reason why it cannot run here; none when it can
    void (*run)(const Options&, Bench&);

    const Metric& metric(std::string_view name) const;  // throws Error when it is not declared
};

// For `waived` of what every machine can do.
inline std::optional<std::string> runs_anywhere() { return std::nullopt; }

extern const std::string_view program;  // what this executable is called in its errors
std::span<const Measurement> measurements();
const Measurement& find_measurement(std::string_view name);  // throws Error naming the nearest

}  // namespace assay
