// Records, one JSON line each, on standard output; words for people go to standard error.
//
// The definition of every record is python/assay/records/schema.py; this is the writing end. Each
// line is one write(2), so that lines of several ranks behind one launcher do not mix, and flushed,
// so that a killed run keeps what it measured. Values are in SI base units.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/registry.hpp"
#include "core/statistics.hpp"

namespace assay {

using Json = nlohmann::ordered_json;

inline constexpr int schema_version = 1;

// Empty members are left out. A directed pair: bytes go from host to peer.
struct Subject {
    std::string host{}, peer{}, device{};
    std::optional<int> numa{}, rank{};
};

// Flows that ran at one time: their ends (an empty source: every other), rates, and the rates in
// equal slices of that time. No values where they did not all run at one time.
struct FlowRates {
    explicit FlowRates(std::size_t flows) : values(flows), slices(flows) {}
    std::vector<std::string> sources{}, targets{};
    std::vector<double> values;
    std::vector<std::vector<double>> slices;
};

class Sink {
public:
    explicit Sink(int descriptor = 1) : descriptor_(descriptor) {}

    void measurement(const Measurement&, std::string_view metric, const Subject&,
                     const Json& params, const Summary&, std::span<const double> samples = {});
    // counts[k] samples lie from edges[k] up to edges[k + 1], in the unit of the metric.
    void distribution(const Measurement&, std::string_view metric, const Subject&,
                      const Json& params, const Summary&, std::span<const double> edges,
                      std::span<const std::uint64_t> counts);
    void waived(const Measurement&, std::string_view metric, const Subject&, const Json& params,
                const std::string& reason);
    // A value that must not be taken for the subject's own: something else stood in the way. It
    // never passes.
    void doubtful(const Measurement&, std::string_view metric, const Subject&, const Json& params,
                  const Summary&, const std::string& reason);
    // One row of a pair matrix: values[k] goes with peers[k].
    void pairs(const Measurement&, std::string_view metric, const Subject&, const Json& params,
               std::span<const std::string> peers, std::span<const double> values);
    void flows(const Measurement&, std::string_view metric, const Json& params, const FlowRates&);
    // expected, observed: the 8 bytes around the offset.
    void corruption(const Measurement&, const Subject&, const Json& params, std::uint64_t message,
                    std::uint64_t offset, std::uint64_t expected, std::uint64_t observed);
    void context(const Subject&, const Json& facts);
    // primary: done from outside, so never the consequence of another failure.
    void failure(const std::string& what, const std::string& fix, const Subject&,
                 bool primary = false);
    void hello(int rank, const std::string& host);
    // A side that waits for its other one (a receiver, a server) now can be reached.
    void ready(std::string_view label);
    // done: 0..1; left in seconds, negative when unknown.
    void progress(double done, std::string_view label, double left = -1);

private:
    void write(const Json&);
    int descriptor_;
};

Json to_json(const Summary&);

}  // namespace assay
