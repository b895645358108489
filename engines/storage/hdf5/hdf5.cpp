// Runs storage.hdf5 and emits its measurements: a write pass and a read pass over all time steps
// (steps.hpp).
#ifdef ASSAY_HDF5
#include "storage/hdf5/hdf5.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "storage/hdf5/steps.hpp"

namespace assay::storage {
namespace {

Json params_of(const Ranks& ranks, const DatasetShape& shape, bool reading) {
    const char* const patterns[] = {"CONTIG", "INTERLEAVED"};
    const char* const options[] = {"FULL", "PARTIAL", "STRIDED"};
    Json params = ranks.parameters();
    params["op"] = reading ? "read" : "write";
    params["mem_pattern"] = patterns[static_cast<int>(shape.memory)];
    params["file_pattern"] = patterns[static_cast<int>(shape.file)];
    if (reading) params["read_option"] = options[static_cast<int>(shape.read)];
    params["calls"] = shape.collective_data ? "collective" : "independent";
    params["metadata"] = shape.collective_metadata ? "collective" : "independent";
    params["timesteps"] = shape.timesteps;
    params["dims"] = fmt::format("{} x {} x {}", shape.extent[0], shape.extent[1], shape.extent[2]);
    return params;
}

void report(Ranks& ranks, const DatasetShape& shape, bool reading, const PassTimes& local_times,
            std::uint64_t wrong) {
    double longest[] = {local_times.open,  local_times.metadata, local_times.raw,
                        local_times.close, local_times.compute,  local_times.observed};
    ranks.allreduce_max(longest);
    std::uint64_t sum[] = {wrong};
    ranks.allreduce_sum(sum);
    if (!ranks.is_root()) return;
    const std::uint64_t particles =
        reading ? shape.particles_read(ranks.size()) : shape.particles();
    const double bytes = static_cast<double>(particles) * sizeof(Particle) *
                         static_cast<double>(shape.timesteps) * ranks.size();
    const Json params = params_of(ranks, shape, reading);
    const auto emit = [&](const char* metric, double value) {
        const double samples[] = {value};
        ranks.sink.measurement(ranks.measurement, metric, {}, params, summarize(samples), samples);
    };
    emit("raw_rate", bytes / longest[2]);
    emit("observed_rate", bytes / longest[5]);
    emit("raw_time", longest[2]);
    emit("metadata_time", longest[1]);
    emit("open_time", longest[0]);
    emit("close_time", longest[3]);
    emit("compute_time", longest[4]);
    emit("observed_time", longest[5]);
    if (reading) emit("wrong", static_cast<double>(sum[0]));
}

}  // namespace

std::optional<std::string> detail::hdf5_waived() { return std::nullopt; }

void detail::run_hdf5(const Options& options, Bench& bench) {
    with_ranks(bench, hdf5, options, [&](Ranks& ranks) {
        const std::string& file = options.text("file");
        if (file.empty())
            throw Error("no file given",
                        "give a path that every rank can reach: --file /scratch/t.h5");
        const DatasetShape shape = read_shape(options);
        const bool both = options.flag("write") == options.flag("read");
        Steps steps(ranks, shape, file);
        if (both || options.flag("write")) {
            remove_file(ranks, file);
            report(ranks, shape, false, steps.write(), 0);
        }
        if (both || options.flag("read")) {
            const PassTimes times = steps.read();
            report(ranks, shape, true, times, steps.wrong());
        }
        if (!options.flag("keep")) remove_file(ranks, file);
    });
}

}  // namespace assay::storage
#endif
