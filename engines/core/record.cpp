// Composes records and writes them as JSON lines (see record.hpp).
#include "core/record.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace assay {
namespace {

std::string_view name_of(Better better) {
    switch (better) {
        case Better::higher: return "higher";
        case Better::lower: return "lower";
        case Better::none: break;
    }
    return "none";
}

Json to_json(const Subject& subject) {
    Json j = Json::object();
    if (!subject.host.empty()) j["host"] = subject.host;
    if (!subject.peer.empty()) j["peer"] = subject.peer;
    if (!subject.device.empty()) j["device"] = subject.device;
    if (subject.numa) j["numa"] = *subject.numa;
    if (subject.rank) j["rank"] = *subject.rank;
    return j;
}

// The fields that records of all kinds of measured values share.
Json measurement_head(std::string_view kind, const Measurement& measurement,
                      std::string_view metric, const Subject& subject, const Json& params) {
    const Metric& m = measurement.metric(metric);
    return {{"kind", kind},
            {"name", measurement.name},
            {"metric", m.name},
            {"unit", m.unit},
            {"better", name_of(m.better)},
            {"subject", to_json(subject)},
            {"params", params.is_null() ? Json::object() : params}};
}

Json rounded(std::span<const double> values, int digits) {
    Json list = Json::array();
    for (const double value : values) {
        const double step =
            value == 0 ? 1 : std::pow(10, std::floor(std::log10(std::abs(value))) + 1 - digits);
        list.push_back(std::round(value / step) * step);
    }
    return list;
}

}  // namespace

Json to_json(const Summary& s) {
    return {{"n", s.n},     {"median", s.median}, {"mad", s.mad}, {"min", s.min},
            {"max", s.max}, {"p5", s.p5},         {"p95", s.p95}, {"p99", s.p99}};
}

void Sink::write(const Json& record) {
    const std::string line = record.dump() + '\n';
    // write(2) to a full pipe may write a part of the line; the loop writes the rest.
    for (std::size_t written = 0; written < line.size();) {
        const ssize_t n = ::write(descriptor_, line.data() + written, line.size() - written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            throw Error("cannot write a record to standard output",
                        "check that the reading process still runs");
        written += static_cast<std::size_t>(n);
    }
}

void Sink::measurement(const Measurement& measurement, std::string_view metric,
                       const Subject& subject, const Json& params, const Summary& summary,
                       std::span<const double> samples) {
    Json record = measurement_head("measurement", measurement, metric, subject, params);
    record["summary"] = to_json(summary);
    if (!samples.empty()) record["samples"] = samples;
    write(record);
}

void Sink::distribution(const Measurement& measurement, std::string_view metric,
                        const Subject& subject, const Json& params, const Summary& summary,
                        std::span<const double> edges, std::span<const std::uint64_t> counts) {
    Json record = measurement_head("measurement", measurement, metric, subject, params);
    record["summary"] = to_json(summary);
    record["histogram"] = {{"edges", edges}, {"counts", counts}};
    write(record);
}

void Sink::waived(const Measurement& measurement, std::string_view metric, const Subject& subject,
                  const Json& params, const std::string& reason) {
    Json record = measurement_head("measurement", measurement, metric, subject, params);
    record["status"] = "waived";
    record["reason"] = reason;
    write(record);
}

void Sink::doubtful(const Measurement& measurement, std::string_view metric, const Subject& subject,
                    const Json& params, const Summary& summary, const std::string& reason) {
    Json record = measurement_head("measurement", measurement, metric, subject, params);
    record["summary"] = to_json(summary);
    record["status"] = "error";
    record["reason"] = reason;
    write(record);
}

void Sink::pairs(const Measurement& measurement, std::string_view metric, const Subject& subject,
                 const Json& params, std::span<const std::string> peers,
                 std::span<const double> values) {
    Json record = measurement_head("pairs", measurement, metric, subject, params);
    record["peers"] = peers;
    // Five digits keep a matrix of n^2 values small; measured rates are noisier than that.
    record["values"] = rounded(values, 5);
    write(record);
}

void Sink::flows(const Measurement& measurement, std::string_view metric, const Json& params,
                 const FlowRates& rates) {
    Json record = measurement_head("flows", measurement, metric, {}, params);
    record["sources"] = rates.sources;
    record["targets"] = rates.targets;
    record["values"] = rounded(rates.values, 7);
    Json& slices = record["slices"] = Json::array();
    for (const std::vector<double>& values : rates.slices) slices.push_back(rounded(values, 7));
    write(record);
}

void Sink::corruption(const Measurement& measurement, const Subject& subject, const Json& params,
                      std::uint64_t message, std::uint64_t offset, std::uint64_t expected,
                      std::uint64_t observed) {
    write({{"kind", "corruption"},
           {"name", measurement.name},
           {"subject", to_json(subject)},
           {"params", params},
           {"message", message},
           {"offset", offset},
           {"expected", fmt::format("{:016x}", expected)},
           {"observed", fmt::format("{:016x}", observed)}});
}

void Sink::context(const Subject& subject, const Json& facts) {
    write({{"kind", "context"}, {"subject", to_json(subject)}, {"facts", facts}});
}

void Sink::failure(const std::string& problem, const std::string& fix, const Subject& subject,
                   bool primary) {
    write({{"kind", "failure"},
           {"problem", problem},
           {"fix", fix},
           {"subject", to_json(subject)},
           {"primary", primary}});
}

void Sink::hello(int rank, const std::string& host) {
    write({{"kind", "hello"}, {"rank", rank}, {"host", host}});
}

void Sink::waiting(std::span<const int> ranks) { write({{"kind", "waiting"}, {"ranks", ranks}}); }
void Sink::members(std::span<const int> ranks) { write({{"kind", "members"}, {"ranks", ranks}}); }

void Sink::ranks(std::span<const std::string> labels, std::span<const int> host_index,
                 const Json& hosts) {
    write({{"kind", "ranks"}, {"labels", labels}, {"host_index", host_index}, {"hosts", hosts}});
}

void Sink::ready(std::string_view label) { write({{"kind", "ready"}, {"label", label}}); }

void Sink::progress(double done, std::string_view label, double left) {
    write({{"kind", "progress"}, {"done", done}, {"label", label}, {"left_s", left}});
}

}  // namespace assay
