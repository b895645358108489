// Writes records to standard output, one JSON line each. Messages for people go to standard error.
//
// python/assay/records/schema.py defines every record. Each line is one unbuffered write(2), so
// that lines of several ranks behind one launcher do not mix and a killed run keeps what it
// measured. Values are in SI base units.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/registry.hpp"
#include "core/statistics.hpp"

namespace assay {

using Json = nlohmann::ordered_json;

inline constexpr int schema_version = 4;

// The subject of a record: a host, a pair, a device, ... Empty members are left out. In a pair,
// bytes go from host to peer.
struct Subject {
    std::string host{}, peer{}, device{};
    std::optional<int> numa{}, rank{};
};

// Concurrent flows: their ends, rates, and the rates in equal slices of the time in which all flows
// ran. An empty source stands for all other ranks. `values` is empty if there was no such time.
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
    // counts[k] samples are in [edges[k], edges[k + 1]), in the unit of the metric.
    void distribution(const Measurement&, std::string_view metric, const Subject&,
                      const Json& params, const Summary&, std::span<const double> edges,
                      std::span<const std::uint64_t> counts);
    void waived(const Measurement&, std::string_view metric, const Subject&, const Json& params,
                const std::string& reason);
    // A value that something other than the subject limited, given by `reason`. It never passes a
    // criterion.
    void doubtful(const Measurement&, std::string_view metric, const Subject&, const Json& params,
                  const Summary&, const std::string& reason);
    // One row of a pair matrix: values[k] belongs to peers[k].
    void pairs(const Measurement&, std::string_view metric, const Subject&, const Json& params,
               std::span<const std::string> peers, std::span<const double> values);
    void flows(const Measurement&, std::string_view metric, const Json& params, const FlowRates&);
    // `expected` and `observed` are the 8 bytes around the offset.
    void corruption(const Measurement&, const Subject&, const Json& params, std::uint64_t message,
                    std::uint64_t offset, std::uint64_t expected, std::uint64_t observed);
    void context(const Subject&, const Json& facts);
    // `primary`: the failure has its cause outside the run, so it is not the consequence of another
    // failure.
    void failure(const std::string& problem, const std::string& fix, const Subject&,
                 bool primary = false);
    // This process has started; written before its transport connects.
    void hello(int rank, const std::string& host);
    // The ranks that the start waits for; none: all are there.
    void waiting(std::span<const int> ranks);
    // The ranks that take part now, for the launcher, which plans their exchange.
    void members(std::span<const int> ranks);
    // The label of each rank, and the `hosts` (objects with host, names, addresses) of the ranks;
    // host_index[r] is an index into `hosts`. Written before any record that has a label.
    void ranks(std::span<const std::string> labels, std::span<const int> host_index,
               const Json& hosts);
    // This process (a receiver, a server) can now be reached by its peer.
    void ready(std::string_view label);
    // `done` is 0 to 1; `left` is in seconds, negative if unknown.
    void progress(double done, std::string_view label, double left = -1);

private:
    void write(const Json&);
    int descriptor_;
};

Json to_json(const Summary&);

}  // namespace assay
