// Runs the solver of storage.reaction_diffusion: time steps with halo exchange, snapshots at an
// interval, and the measurements at the end.
#include "storage/reaction_diffusion/reaction_diffusion.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "storage/reaction_diffusion/snapshot.hpp"

namespace assay::storage {
namespace {

struct Times {
    double compute = 0, communication = 0, write = 0;  // seconds, this rank's
    std::vector<double> snapshots;
};

class Solver {
public:
    Solver(Ranks& ranks, const Options& options, const Layout& layout, SnapshotSettings settings)
        : ranks_(ranks),
          steps_(options.integer("steps")),
          interval_(options.integer("interval")),
          keep_(options.flag("keep")),
          validate_(!options.flag("novalidate")),
          initial_output_(!options.flag("disable_initial_output")),
          settings_(std::move(settings)),
          tile_(ranks, layout) {}

    void run();
    void report();

private:
    void write_and_check_snapshot();
    void check_snapshot(const std::string& file);
    template <class Work>
    void timed(double& sum, Work work) {
        const Nanoseconds begin = now();
        work();
        sum += seconds(now() - begin);
    }

    Ranks& ranks_;
    const std::int64_t steps_, interval_;
    const bool keep_, validate_, initial_output_;
    const SnapshotSettings settings_;
    Tile tile_;
    Times times_;
    std::int64_t written_ = 0, wrong_ = 0;
    std::uint64_t digest_ = 0;
};

void Solver::run() {
    if (initial_output_) write_and_check_snapshot();
    for (std::int64_t step = 1; step <= steps_; ++step) {
        timed(times_.communication, [&] { tile_.exchange_halos(); });
        timed(times_.compute, [&] { tile_.step(); });
        if (step % interval_ == 0) write_and_check_snapshot();
        ranks_.progress(static_cast<double>(step) / static_cast<double>(steps_),
                        fmt::format("step {} of {}", step, steps_));
    }
}

void Solver::check_snapshot(const std::string& file) {
    digest_ = digest_of_tiles(ranks_, tile_);
    if (digest_of_file(ranks_, tile_.layout, settings_, file) != digest_) ++wrong_;
}

// Writes a snapshot, and reads it back and compares it before the next step. The comparison is not
// timed. The ranks continue together, so that its duration does not count as waiting in the halo
// exchange.
void Solver::write_and_check_snapshot() {
    const std::string file = snapshot_file(settings_, tile_.layout, written_);
    double elapsed_s = 0;
    ranks_.barrier();
    timed(elapsed_s, [&] { write_snapshot(ranks_, tile_, settings_, file); });
    times_.write += elapsed_s;
    times_.snapshots.push_back(elapsed_s);
    ++written_;
    if (validate_) check_snapshot(file);
    if (keep_) ranks_.barrier();
    else remove_file(ranks_, file);
}

void Solver::report() {
    const double total = times_.compute + times_.communication + times_.write;
    double longest[] = {times_.compute, times_.communication, times_.write, total};
    ranks_.allreduce_max(longest);
    ranks_.allreduce_max(times_.snapshots);
    if (!ranks_.is_root()) return;
    const Layout& layout = tile_.layout;
    const char* const types[] = {"manual", "view", "chunk"};
    Json params = ranks_.parameters();
    params.update({{"op", "write"},
                   {"length", layout.length},
                   {"xnp", layout.xnp},
                   {"ynp", layout.ynp},
                   {"iotype", types[static_cast<int>(settings_.type)]},
                   {"calls", settings_.collective ? "collective" : "independent"},
                   {"sync", settings_.sync},
                   {"steps", steps_},
                   {"interval", interval_},
                   {"files", written_}});
    if (!validate_) params["validate"] = false;
    if (!initial_output_) params["initial_output"] = false;
    const auto emit = [&](const char* metric, std::vector<double> samples) {
        ranks_.sink.measurement(ranks_.measurement, metric, {}, params, summarize(samples),
                                samples);
    };
    const double bytes =
        static_cast<double>(written_) * layout.length * layout.length * sizeof(double);
    emit("bandwidth", {bytes / longest[2]});
    emit("compute_time", {longest[0]});
    emit("communication_time", {longest[1]});
    emit("write_time", {longest[2]});
    emit("total_time", {longest[3]});
    emit("snapshot_time", times_.snapshots);
    if (!validate_) return;
    params["digest"] = fmt::format("{:016x}", digest_);  // of the last snapshot
    emit("wrong", {static_cast<double>(wrong_)});
}

IoType read_io_type(const std::string& text) {
    const std::map<std::string, IoType> types{
        {"manual", IoType::manual}, {"view", IoType::view}, {"chunk", IoType::chunk}};
    const auto type = types.find(text);
    if (type == types.end())
        throw Error("--iotype " + text + ": unknown iotype", "choose one of manual, view, chunk");
    return type->second;
}

// Rank 0 makes the folder of the snapshots, as RDBench does.
void make_folder(Ranks& ranks, const std::string& prefix) {
    const std::filesystem::path folder = std::filesystem::path(prefix).parent_path();
    std::error_code error;
    if (ranks.is_root() && !folder.empty()) std::filesystem::create_directories(folder, error);
    if (error)
        ranks.fail(fmt::format("cannot make the folder {}: {}", folder.string(), error.message()),
                   "give a prefix in a folder that can be made or exists");
    ranks.barrier();
}

// Throws Error if no snapshot would be written.
void check_interval(const Options& options) {
    if (options.flag("disable_initial_output") &&
        options.integer("interval") > options.integer("steps"))
        throw Error("no snapshot would be written: the interval is longer than the run",
                    "give an interval (-i) of at most the number of steps (-s)");
}

}  // namespace

void detail::run_reaction_diffusion(const Options& options, Bench& bench) {
    with_ranks(bench, reaction_diffusion, options, [&](Ranks& ranks) {
        if (options.text("file").empty())
            throw Error("no file prefix given",
                        "give a prefix that every rank can reach: --file /scratch/out_");
        const Layout layout = make_layout(static_cast<int>(options.integer("length")),
                                          static_cast<int>(options.integer("xnp")),
                                          static_cast<int>(options.integer("ynp")), ranks.size());
        check_interval(options);
        if (!options.flag("nomkdir")) make_folder(ranks, options.text("file"));
        Solver solver(ranks, options, layout,
                      {options.text("file"), read_io_type(options.text("iotype")),
                       options.flag("collective"), !options.flag("nosync")});
        solver.run();
        solver.report();
    });
}

}  // namespace assay::storage
