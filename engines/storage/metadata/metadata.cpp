// Phases begin with a barrier. In each, every rank works on the items of one rank, its own where
// they are made, another's afterwards, so that no operation finds its item in the cache of the node
// that made it. The time of a phase is that of its longest rank; clocks of different ranks are not
// compared.
#include "storage/metadata/metadata.hpp"

#include <fmt/format.h>

#include <map>

#include "core/error.hpp"
#include "storage/metadata/items.hpp"
#include "storage/ranks/straggler.hpp"

namespace assay::storage {
namespace {

struct Plan {
    std::string folder;
    std::uint64_t items;
    std::int64_t iterations;
    int shift;  // in ranks
    double stonewall_s;
    std::size_t bytes;
    bool posix, mpiio, files, directories, unique, fsync;
};

// The results of one operation: a sample per iteration, on rank 0; this rank's latencies.
struct Tally {
    Histogram latency;
    std::uint64_t wrong = 0;
    std::vector<double> rate, time, operations;
    std::vector<std::vector<double>> rank_times;
};

struct Operation {
    const char *api, *name, *doing;
    bool compares;  // whether an item may turn out to be wrong
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

    void iterate(std::int64_t iteration);
    void directories();
    void files();
    void mpi_files();
    int owner(int steps) const;
    void make_folders();
    void remove_folders();
    // Runs `body(number)` for the numbers in [0, count), and returns how many there were in time.
    template <class Body>
    std::uint64_t phase(const Operation& operation, std::uint64_t count, Body body);
    template <class Body>
    Counts phase(const Operation& operation, int steps, const Counts& existing, Body body);
    void list_files(const Counts& existing);
    void record(const Operation& operation, std::uint64_t operations, double own_s);
    bool is_over() const {
        return plan_.stonewall_s > 0 && seconds(last_ - begin_) > plan_.stonewall_s;
    }
    void report(const Operation& operation, Tally& tally);

    Ranks& ranks_;
    const Plan& plan_;
    Items items_;
    Tree tree_;
    std::uint64_t signature_ = 0;
    double done_ = 0;                        // share of the run
    Nanoseconds begin_ = 0, last_ = 0;       // of the present phase, and of its last operation
    std::vector<const Operation*> ordered_;  // in the order of measuring
    std::map<const Operation*, Tally> tallies_;
};

// The rank whose items this rank uses. Each phase goes a step further, so that no phase uses what
// the phase before has brought into this node's cache, and never back to this rank's own.
int Runner::owner(int steps) const {
    const auto at = [&](std::int64_t distance) {
        return static_cast<int>((ranks_.rank() + distance) % ranks_.size());
    };
    const int existing = at(std::int64_t{steps} * plan_.shift);
    return existing == ranks_.rank() ? at(plan_.shift) : existing;
}

template <class Body>
std::uint64_t Runner::phase(const Operation& operation, std::uint64_t count, Body body) {
    ranks_.barrier();
    Tally& tally = tallies_[&operation];
    std::uint64_t done = 0;
    for (begin_ = last_ = now(); done < count && !is_over(); ++done) {
        ranks_.enter(operation.doing, last_);
        tally.wrong += !body(done);
        ranks_.leave();
        const Nanoseconds finish = now();
        tally.latency.record(finish - last_);
        last_ = finish;
        if (done % 1024 == 0) ranks_.progress(done_, operation.name);
    }
    record(operation, done, seconds(last_ - begin_));
    return done;
}

// Works on items of another rank, `steps` away, and returns how many of each rank's were worked on.
template <class Body>
Runner::Counts Runner::phase(const Operation& operation, int steps, const Counts& existing,
                             Body body) {
    const auto other = static_cast<std::size_t>(owner(steps));
    Counts done(existing.size(), 0);
    done[other] = phase(operation, existing[other], [&](std::uint64_t number) {
        return body(static_cast<int>(other), number);
    });
    ranks_.sum(done);
    return done;
}

void Runner::record(const Operation& operation, std::uint64_t operations, double own_s) {
    std::uint64_t all[] = {operations};
    double longest[] = {own_s};
    ranks_.sum(all);
    ranks_.max(longest);
    Tally& tally = tallies_[&operation];
    if (tally.time.empty()) ordered_.push_back(&operation);
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

void Runner::directories() {
    const int rank = ranks_.rank();
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[static_cast<std::size_t>(rank)] =
        phase(make_directory, plan_.items, [&](std::uint64_t number) {
            items_.make_directory(tree_.directory(rank, number));
            return true;
        });
    ranks_.sum(existing);
    phase(stat_directory, 1, existing, [&](int maker, std::uint64_t number) {
        return items_.stat_directory(tree_.directory(maker, number));
    });
    const Counts removed =
        phase(remove_directory, 2, existing, [&](int maker, std::uint64_t number) {
            return items_.remove_directory(tree_.directory(maker, number));
        });
    const auto own_index = static_cast<std::size_t>(rank);
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.remove_directory(tree_.directory(rank, k));
}

// Every rank lists the directory that it shares, or another rank's.
void Runner::list_files(const Counts& existing) {
    const int maker = owner(3);
    std::uint64_t expected = 0;
    for (std::size_t rank = 0; rank < existing.size(); ++rank)
        if (!plan_.unique || rank == static_cast<std::size_t>(maker)) expected += existing[rank];
    ranks_.barrier();
    begin_ = last_ = now();
    ranks_.enter(list.doing, last_);
    bool over = false;
    const std::uint64_t entries = items_.list(tree_.folder(maker), [&] {
        last_ = now();
        ranks_.enter(list.doing, last_);
        over = is_over();
        return !over;
    });
    last_ = now();
    ranks_.leave();
    Tally& tally = tallies_[&list];
    tally.latency.record(last_ - begin_);
    if (!over) tally.wrong += entries > expected ? entries - expected : expected - entries;
    record(list, entries, seconds(last_ - begin_));
}

void Runner::files() {
    const int rank = ranks_.rank();
    const auto own_index = static_cast<std::size_t>(rank);
    const Content content(rank, signature_);
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[own_index] = phase(create, plan_.items, [&](std::uint64_t number) {
        items_.create(tree_.file(rank, number), content, number);
        return true;
    });
    ranks_.sum(existing);
    phase(stat_file, 1, existing, [&](int maker, std::uint64_t number) {
        return items_.stat_file(tree_.file(maker, number));
    });
    const Content read(owner(2), signature_);
    phase(open_file, 2, existing, [&](int maker, std::uint64_t number) {
        return items_.open(tree_.file(maker, number), read, number);
    });
    list_files(existing);
    const Counts renamed = phase(rename_file, 4, existing, [&](int maker, std::uint64_t number) {
        return items_.rename(tree_.file(maker, number), tree_.renamed(maker, number));
    });
    const auto name = [&](int maker, std::uint64_t number) {
        return number < renamed[static_cast<std::size_t>(maker)] ? tree_.renamed(maker, number)
                                                                 : tree_.file(maker, number);
    };
    const Counts removed = phase(unlink_file, 5, existing, [&](int maker, std::uint64_t number) {
        return items_.unlink(name(maker, number));
    });
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.unlink(name(rank, k));
}

void Runner::mpi_files() {
    const int rank = ranks_.rank();
    const auto own_index = static_cast<std::size_t>(rank);
    const Content content(rank, signature_);
    Counts existing(static_cast<std::size_t>(ranks_.size()), 0);
    existing[own_index] = phase(create_mpi, plan_.items, [&](std::uint64_t number) {
        items_.create_mpi(tree_.file(rank, number), content, number);
        return true;
    });
    ranks_.sum(existing);
    const Content read(owner(1), signature_);
    phase(open_mpi, 1, existing, [&](int maker, std::uint64_t number) {
        return items_.open_mpi(tree_.file(maker, number), read, number);
    });
    const Counts removed = phase(delete_mpi, 2, existing, [&](int maker, std::uint64_t number) {
        return items_.delete_mpi(tree_.file(maker, number));
    });
    for (std::uint64_t k = removed[own_index]; k < existing[own_index]; ++k)
        items_.delete_mpi(tree_.file(rank, k));
}

void Runner::iterate(std::int64_t iteration) {
    // Each iteration has names of its own, which no cache knows.
    tree_ = {fmt::format("{}/{}", plan_.folder, iteration), plan_.unique};
    signature_ += 1;
    make_folders();
    if (plan_.posix && plan_.directories) directories();
    if (plan_.posix && plan_.files) files();
    if (plan_.mpiio && plan_.files) mpi_files();
    remove_folders();
    done_ += 1.0 / static_cast<double>(plan_.iterations);
}

void Runner::run() {
    signature_ = static_cast<std::uint64_t>(now());
    ranks_.broadcast(signature_);
    if (ranks_.is_root()) items_.make_directory(plan_.folder);
    for (std::int64_t k = 0; k < plan_.iterations; ++k) iterate(k);
    ranks_.barrier();
    if (ranks_.is_root()) items_.remove_directory(plan_.folder);
    for (const Operation* operation : ordered_) report(*operation, tallies_[operation]);
}

void Runner::report(const Operation& operation, Tally& tally) {
    const Histogram latency = ranks_.merged(tally.latency);
    std::uint64_t wrong[] = {tally.wrong};
    ranks_.sum(wrong);
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

int shift_of(const Options& options, const Ranks& ranks) {
    const auto shift = static_cast<int>(options.integer("shift"));
    if (shift >= 0) return shift;
    return ranks.hosts() > 1 ? ranks.ranks_on_first() : 1;
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
            .shift = shift_of(options, ranks),
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

void detail::run_metadata(const Options& options, Bench& bench) {
    with_ranks(bench, metadata, options, [&](Ranks& ranks) {
        const Plan plan = read_plan(options, ranks);
        Runner(ranks, plan).run();
    });
}

}  // namespace assay::storage
