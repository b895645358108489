// Reads and checks the description of a paced workload.
#include "node/memory/workload.hpp"

#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.hpp"

namespace assay::node {
namespace {

Operation parse_operation(const std::string& text) {
    for (Operation operation :
         {Operation::write, Operation::read, Operation::copy, Operation::transpose})
        if (text == name(operation)) return operation;
    throw Error("unknown memory operation '" + text + "'", "choose write, read, copy or transpose");
}

void check(const Workload& w) {
    if (w.stations < 1 || w.stations > 10'000 || w.steps.empty())
        throw Error("the workload has no threads, or too many",
                    "give 1 to 10000 stations, each with steps");
    for (const PacedStep& step : w.steps) {
        if (step.block < 4096 || step.block > (std::size_t{1} << 32) || !(step.rate > 0))
            throw Error("a step of the workload needs a block of 4 KiB to 4 GiB and a rate",
                        "see workloads/cobalt2.toml");
        if (step.operation != Operation::transpose) continue;
        const std::size_t chunks = w.chunk > 0 ? step.block / w.chunk : 0;
        if (chunks < 2)
            throw Error("a block to be transposed has fewer than two chunks",
                        "use a smaller chunk");
        if (std::gcd(w.multiplier, chunks) != 1)
            throw Error("the multiplier " + std::to_string(w.multiplier) + " and the " +
                            std::to_string(chunks) + " chunks of a block have a common divisor",
                        "choose a multiplier that is coprime to the number of chunks");
    }
}

}  // namespace

const char* name(Operation operation) {
    switch (operation) {
        case Operation::write: return "write";
        case Operation::read: return "read";
        case Operation::copy: return "copy";
        case Operation::transpose: break;
    }
    return "transpose";
}

double Workload::desired() const {
    double sum = 0;
    for (const PacedStep& step : steps) sum += step.rate * step.traffic();
    return sum * stations;
}

std::size_t Workload::memory() const {
    double sum = 0;
    for (const PacedStep& step : steps) sum += static_cast<double>(step.block) * step.traffic();
    return static_cast<std::size_t>(sum) * static_cast<std::size_t>(stations);
}

Workload parse_workload(const std::string& json) {
    Workload w;
    try {
        const auto parsed = nlohmann::json::parse(json);
        w.name = parsed.at("name");
        w.stations = parsed.at("stations");
        w.chunk = parsed.value("chunk", std::size_t{0});
        w.multiplier = parsed.value("multiplier", std::size_t{1});
        for (const auto& step : parsed.at("steps"))
            w.steps.push_back(
                {parse_operation(step.at("operation")), step.at("block"), step.at("rate")});
    } catch (const nlohmann::json::exception& error) {
        throw Error(std::string("cannot read the workload: ") + error.what(),
                    "assay mem generates it from a workload file");
    }
    check(w);
    return w;
}

}  // namespace assay::node
