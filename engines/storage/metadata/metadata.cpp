// Runs the metadata benchmark: phases of one operation each (create, stat, open, ...). A phase
// begins with a barrier. A rank creates its own items; in the other phases it works on the items of
// another rank, so that no operation finds its item in the cache of the node that created it. The
// time of a phase is that of the longest rank, so clocks of different ranks are not compared.
#include "storage/metadata/metadata.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "storage/metadata/items.hpp"
#include "storage/ranks/straggler.hpp"

namespace assay::storage::detail {
namespace {

// The parameters of the benchmark, which metadata.hpp explains.
struct Plan {
    std::string folder;
    std::uint64_t items;
    std::int64_t iterations;
    int shift;           // in ranks
    double stonewall_s;  // time after which no rank begins another operation of a phase; 0: none
    std::size_t bytes;   // of each file
    bool posix, mpiio, files, directories, unique, fsync;
};

// The results of one operation: samples per iteration, on rank 0 only, and this rank's latencies.
struct Tally {
    Histogram latency;
    std::uint64_t wrong = 0;
    std::vector<double> rate, time, operations;
    std::vector<std::vector<double>> rank_times;
};

// A measured operation. `api` and `name` are in its records; `action` is for messages.
struct Operation {
    const char *api, *name, *action;
    bool compares;  // whether it checks the item, so that it can be wrong
};
constexpr Operation make_directory{"posix", "mkdir", "makes a directory", false},
    stat_directory{"posix", "stat directory", "looks up a directory", true},
    remove_directory{"posix", "rmdir", "removes a directory", true},
    create{"posix", "create", "creates a file", false},
    stat_file{"posix", "stat", "looks up a file", true},
    open_file{"posix", "open", "opens a file", true},
    list{"posix", "readdir", "lists a directory", true},
    rename_file{"posix", "rename", "renames a file", true},
    unlink_file{"posix", "unlink", "removes a file", true},
    create_mpi{"mpiio", "create", "creates a file", false},
    open_mpi{"mpiio", "open", "opens a file", true},
    delete_mpi{"mpiio", "delete", "deletes a file", true};

class Runner {
public:
    Runner(Ranks& ranks, const Plan& plan)
        : ranks_(ranks), plan_(plan), items_(ranks, plan.bytes, plan.fsync) {}

    void run();

private:
    using Counts = std::vector<std::uint64_t>;  // by the rank that made the items

    void run_iteration(std::int64_t iteration);
    void measure_directories();
    void measure_files();
    void measure_mpi_files();
    int owner_of_items(int steps) const;
    void make_folders();
    void remove_folders();
    // Runs `body(number)` for the numbers in [0, count) until the stonewall. `body` returns whether
    // the item is right. Returns how often it was run.
    template <class Body>
    std::uint64_t run_phase(const Operation& operation, std::uint64_t count, Body body);
    template <class Body>
    Counts run_phase(const Operation& operation, int steps, const Counts& existing, Body body);
    void list_files(const Counts& existing);
    void record_phase(const Operation& operation, std::uint64_t operations, double own_s);
    bool is_over() const {
        return plan_.stonewall_s > 0 && seconds(last_end_ - begin_) > plan_.stonewall_s;
    }
    void report(const Operation& operation, Tally& tally);

    Ranks& ranks_;
    const Plan& plan_;
    Items items_;
    Tree tree_;
    std::uint64_t signature_ = 0;
    double progress_ = 0;                   // share of the run
    Nanoseconds begin_ = 0, last_end_ = 0;  // of the present phase, and of its last operation
    std::vector<const Operation*> operations_in_order_;  // in the order of measuring
    std::map<const Operation*, Tally> tallies_;
};

// The rank whose items this rank uses, `steps` shifts away. Each phase goes one step further, so
// that no phase uses items that the previous phase has brought into this node's cache. It is this
// rank itself only if the shift is 0 or a multiple of the number of ranks.
int Runner::owner_of_items(int steps) const {
    const auto rank_at = [&](std::int64_t distance) {
        return static_cast<int>((ranks_.rank() + distance) % ranks_.size());
    };
    const int owner = rank_at(std::int64_t{steps} * plan_.shift);
    return owner == ranks_.rank() ? rank_at(plan_.shift) : owner;
}

template <class Body>
std::uint64_t Runner::run_phase(const Operation& operation, std::uint64_t count, Body body) {
    ranks_.barrier();
    Tally& tally = tallies_[&operation];
    std::uint64_t done = 0;
    for (begin_ = last_end_ = now(); done < count && !is_over(); ++done) {
        ranks_.enter(operation.action, last_end_);
        tally.wrong += !body(done);
        ranks_.leave();
        const Nanoseconds finish = now();
        tally.latency.record(finish - last_end_);
        last_end_ = finish;
        if (done % 1024 == 0) ranks_.progress(progress_, operation.name);
    }
    record_phase(operation, done, seconds(last_end_ - begin_));
    return done;
}

// Works on the items of another rank, `steps` shifts away. Returns, by owner, how many items were
// worked on.
template <class Body>
Runner::Counts Runner::run_phase(const Operation& operation, int steps, const Counts& existing,
                                 Body body) {
    const auto other = static_cast<std::size_t>(owner_of_items(steps));
    Counts done(existing.size(), 0);
    done[other] = run_phase(operation, existing[other], [&](std::uint64_t number) {
        return body(static_cast<int>(other), number);
    });
    ranks_.allreduce_sum(done);
    return done;
}

void Runner::record_phase(const Operation& operation, std::uint64_t operations, double own_s) {
    std::uint64_t all[] = {operations};
    double longest[] = {own_s};
    ranks_.allreduce_sum(all);
    ranks_.allreduce_max(longest);
    Tally& tally = tallies_[&operation];
    if (tally.time.empty()) operations_in_order_.push_back(&operation);
    tally.time.push_back(longest[0]);
    tally.operations.push_back(static_cast<double>(all[0]));
    tally.rate.push_back(longest[0] > 0 ? static_cast<double>(all[0]) / longest[0] : 0);
    tally.rank_times.push_back(ranks_.gather(own_s));
}

void Runner::make_folders() {
    if (ranks_.is_root()) {
        items_.make_directory(tree_.root);
        for (int rank = 0; rank < (plan_.unique ? ranks_.size() : 1); ++rank)
            items_.make_directory(tree_.folder(rank));
    }
    ranks_.barrier();
}

void Runner::remove_folders() {
    ranks_.barrier();
    if (!ranks_.is_root()) return;
    for (int rank = 0; rank < (plan_.unique ? ranks_.size() : 1); ++rank)
        items_.remove_directory(tree_.folder(rank));
    items_.remove_directory(tree_.root);
}

void Runner::measure_directories() {
    const int rank = ranks_.rank();
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[static_cast<std::size_t>(rank)] =
        run_phase(make_directory, plan_.items, [&](std::uint64_t number) {
            items_.make_directory(tree_.directory(rank, number));
            return true;
        });
    ranks_.allreduce_sum(existing);
    run_phase(stat_directory, 1, existing, [&](int owner, std::uint64_t number) {
        return items_.stat_directory(tree_.directory(owner, number));
    });
    const Counts removed =
        run_phase(remove_directory, 2, existing, [&](int owner, std::uint64_t number) {
            return items_.remove_directory(tree_.directory(owner, number));
        });
    const auto own_index = static_cast<std::size_t>(rank);
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.remove_directory(tree_.directory(rank, k));
}

// Every rank lists the shared directory, or with `unique` that of another rank.
void Runner::list_files(const Counts& existing) {
    const int owner = owner_of_items(3);
    std::uint64_t expected = 0;
    for (std::size_t rank = 0; rank < existing.size(); ++rank)
        if (!plan_.unique || rank == static_cast<std::size_t>(owner)) expected += existing[rank];
    ranks_.barrier();
    begin_ = last_end_ = now();
    ranks_.enter(list.action, last_end_);
    bool is_stopped = false;
    const std::uint64_t entries = items_.list(tree_.folder(owner), [&] {
        last_end_ = now();
        ranks_.enter(list.action, last_end_);
        is_stopped = is_over();
        return !is_stopped;
    });
    last_end_ = now();
    ranks_.leave();
    Tally& tally = tallies_[&list];
    tally.latency.record(last_end_ - begin_);
    if (!is_stopped) tally.wrong += entries > expected ? entries - expected : expected - entries;
    record_phase(list, entries, seconds(last_end_ - begin_));
}

void Runner::measure_files() {
    const int rank = ranks_.rank();
    const auto own_index = static_cast<std::size_t>(rank);
    const Content content(rank, signature_);
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[own_index] = run_phase(create, plan_.items, [&](std::uint64_t number) {
        items_.create(tree_.file(rank, number), content, number);
        return true;
    });
    ranks_.allreduce_sum(existing);
    run_phase(stat_file, 1, existing, [&](int owner, std::uint64_t number) {
        return items_.stat_file(tree_.file(owner, number));
    });
    const Content read_content(owner_of_items(2), signature_);
    run_phase(open_file, 2, existing, [&](int owner, std::uint64_t number) {
        return items_.open(tree_.file(owner, number), read_content, number);
    });
    list_files(existing);
    const Counts renamed =
        run_phase(rename_file, 4, existing, [&](int owner, std::uint64_t number) {
            return items_.rename(tree_.file(owner, number), tree_.renamed(owner, number));
        });
    const auto name = [&](int owner, std::uint64_t number) {
        return number < renamed[static_cast<std::size_t>(owner)] ? tree_.renamed(owner, number)
                                                                 : tree_.file(owner, number);
    };
    const Counts removed = run_phase(
        unlink_file, 5, existing,
        [&](int owner, std::uint64_t number) { return items_.unlink(name(owner, number)); });
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.unlink(name(rank, k));
}

void Runner::measure_mpi_files() {
    const int rank = ranks_.rank();
    const auto own_index = static_cast<std::size_t>(rank);
    const Content content(rank, signature_);
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[own_index] = run_phase(create_mpi, plan_.items, [&](std::uint64_t number) {
        items_.create_mpi(tree_.file(rank, number), content, number);
        return true;
    });
    ranks_.allreduce_sum(existing);
    const Content read_content(owner_of_items(1), signature_);
    run_phase(open_mpi, 1, existing, [&](int owner, std::uint64_t number) {
        return items_.open_mpi(tree_.file(owner, number), read_content, number);
    });
    const Counts removed = run_phase(delete_mpi, 2, existing, [&](int owner, std::uint64_t number) {
        return items_.delete_mpi(tree_.file(owner, number));
    });
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.delete_mpi(tree_.file(rank, k));
}

void Runner::run_iteration(std::int64_t iteration) {
    // Each iteration has new names, which are in no cache.
    tree_ = {fmt::format("{}/{}", plan_.folder, iteration), plan_.unique};
    signature_ += 1;
    make_folders();
    if (plan_.posix && plan_.directories) measure_directories();
    if (plan_.posix && plan_.files) measure_files();
    if (plan_.mpiio && plan_.files) measure_mpi_files();
    remove_folders();
    progress_ += 1.0 / static_cast<double>(plan_.iterations);
}

void Runner::run() {
    signature_ = static_cast<std::uint64_t>(now());
    ranks_.broadcast(signature_);
    if (ranks_.is_root()) items_.make_directory(plan_.folder);
    for (std::int64_t k = 0; k < plan_.iterations; ++k) run_iteration(k);
    ranks_.barrier();
    if (ranks_.is_root()) items_.remove_directory(plan_.folder);
    for (const Operation* operation : operations_in_order_) report(*operation, tallies_[operation]);
}

void Runner::report(const Operation& operation, Tally& tally) {
    const Histogram latency = ranks_.merge_histograms(tally.latency);
    std::uint64_t wrong[] = {tally.wrong};
    ranks_.allreduce_sum(wrong);
    if (!ranks_.is_root()) return;
    Json params = ranks_.parameters();
    params.update({{"api", operation.api},
                   {"op", operation.name},
                   {"items", plan_.items},
                   {"directory", plan_.unique ? "of each rank" : "shared"},
                   {"shift", plan_.shift},
                   {"bytes", plan_.bytes}});
    if (plan_.fsync) params["fsync"] = true;
    if (plan_.stonewall_s > 0) params["stonewall"] = plan_.stonewall_s;
    const auto emit = [&](const char* metric, const std::vector<double>& samples) {
        ranks_.sink.measurement(ranks_.measurement, metric, {}, params, summarize(samples),
                                samples);
    };
    emit("rate", tally.rate);
    if (latency.total())
        ranks_.sink.measurement(ranks_.measurement, "latency", {}, params, latency.summary());
    emit("time", tally.time);
    emit("operations", tally.operations);
    if (ranks_.size() > 1) report_straggler(ranks_, params, tally.rank_times);
    if (operation.compares) emit("wrong", {static_cast<double>(wrong[0])});
}

int read_shift(const Options& options, const Ranks& ranks) {
    const auto shift = static_cast<int>(options.integer("shift"));
    if (shift >= 0) return shift;
    return ranks.host_count() > 1 ? ranks.ranks_on_first_host() : 1;
}

Plan read_plan(const Options& options, const Ranks& ranks) {
    const std::string& api = options.text("api");
    if (api != "posix" && api != "mpiio" && api != "both")
        throw Error("--api " + api + ": unknown interface", "choose one of posix, mpiio, both");
    if (options.text("file").empty())
        throw Error("no folder given",
                    "give a new one that every rank can reach: --file /scratch/t");
    const bool files_only = options.flag("files_only"),
               directories_only = options.flag("directories_only");
    if (files_only && directories_only)
        throw Error("only files, and only directories, are asked for", "give only one of them");
    if (directories_only && api == "mpiio")
        throw Error("MPI-IO has no directories", "choose --api posix, or leave out -D");
    return {.folder = options.text("file"),
            .items = static_cast<std::uint64_t>(options.integer("items")),
            .iterations = options.integer("iterations"),
            .shift = read_shift(options, ranks),
            .stonewall_s = static_cast<double>(options.integer("stonewall")),
            .bytes = static_cast<std::size_t>(options.integer("bytes")),
            .posix = api != "mpiio",
            .mpiio = api != "posix",
            .files = !directories_only,
            .directories = !files_only,
            .unique = options.flag("unique"),
            .fsync = options.flag("fsync")};
}

}  // namespace

void run_metadata(const Options& options, Bench& bench) {
    with_ranks(bench, metadata, options, [&](Ranks& ranks) {
        const Plan plan = read_plan(options, ranks);
        Runner(ranks, plan).run();
    });
}

}  // namespace assay::storage::detail
