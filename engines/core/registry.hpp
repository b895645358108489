// The descriptor of a measurement: its name, scope, parameters, metrics and the function that
// measures.
//
// Each executable has an explicit constexpr table of its measurements (probe/registry.cpp):
// linkers drop objects that register themselves in static initialisers. Python, the documentation
// and the records take everything from these descriptors (--describe), so that nothing is declared
// twice.
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
    std::string_view name;  // the option is "--" + name, with '-' for '_'
    Kind kind;
    std::string_view unit;           // "B" also accepts 64KiB; "" for none
    std::string_view default_value;  // as typed on the command line; "" for none
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

// The interfaces that a running measurement gets: where its records go, and the connection to the
// other ranks of a group. A node measurement runs once on its host and does not use `transport`.
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
    std::optional<std::string> (*waived)();  // the reason why it cannot run here; none if it can
    void (*run)(const Options&, Bench&);
    // Throws Error for settings and files that this number of ranks cannot use; null: none are
    // read.
    void (*check)(const Options&, int ranks) = nullptr;

    const Metric& metric(std::string_view name) const;  // throws Error if not declared
};

// The `waived` of measurements that every machine can run.
inline std::optional<std::string> runs_anywhere() { return std::nullopt; }

// Throws Error that lists the known names if `name` is not in the table.
const Measurement& find_measurement(std::span<const Measurement> table, std::string_view name);

}  // namespace assay
