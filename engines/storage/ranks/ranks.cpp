// The ranks of a storage benchmark (ranks.hpp): collectives, errors and progress, with a watchdog
// that reports a call that does not return.
#include "storage/ranks/ranks.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/topology.hpp"
#include "transport/transport.hpp"

namespace assay::storage {
namespace {

constexpr int exit_unusable = 2;                        // exit code: no result, docs/cli.md
constexpr Nanoseconds progress_interval = 200'000'000;  // between two progress messages

// The file name of the library that provides MPI_File_open. LD_PRELOAD does not tell, because the
// loader only warns if it cannot preload a library. Its address is looked up, not linked: an engine
// for an ABI of MPI also loads where there is none, to describe itself.
std::string io_library() {
    Dl_info info{};
    void* const open = dlsym(RTLD_DEFAULT, "MPI_File_open");
    if (open == nullptr || !dladdr(open, &info) || !info.dli_fname) return "unknown";
    const std::string path = info.dli_fname;
    return path.substr(path.rfind('/') + 1);
}

// accelerated: through Assay's accelerator of parallel I/O; stock: the MPI library's own; else the
// name of another library.
std::string io_mode() {
    std::string library = io_library();
    if (library.starts_with("libassay-io")) return "accelerated";
    if (library.starts_with("libmpi")) return "stock";
    return library;
}

}  // namespace

Ranks::Ranks(Bench& bench, const Measurement& measurement_, const Options& options)
    : sink(bench.sink),
      measurement(measurement_),
      rank_(bench.transport.rank()),
      library_(bench.transport.library()),
      io_(io_mode()),
      transport_(bench.transport),
      repetition_(options.integer("round")),
      limit_(static_cast<Nanoseconds>(options.real("timeout") * 1e9)),
      watchdog_(limit_, [this] { report_stall(); }) {
    hosts_.assign(static_cast<std::size_t>(transport_.size()), "");
    std::string all;
    for (const std::string& name : gather(host_name())) all += name + '\n';
    guarded("waits for the list of hosts", [&] { transport_.broadcast(all); });
    std::size_t begin = 0;
    for (std::string& name : hosts_) {
        const std::size_t end = all.find('\n', begin);
        name = all.substr(begin, end - begin);
        begin = end + 1;
    }
    if (options.flag("accelerated") && io_ != "accelerated")
        fail(fmt::format("the accelerator is not loaded: MPI-IO comes from {}", io_library()),
             "check with 'assay doctor' that its library is on every host and built for this MPI");
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
}

int Ranks::host_count() const {
    return static_cast<int>(std::set<std::string>(hosts_.begin(), hosts_.end()).size());
}

int Ranks::ranks_on_first_host() const {
    return static_cast<int>(std::ranges::count(hosts_, hosts_.front()));
}

Json Ranks::parameters() const {
    return {{"mpi", library_},
            {"io", io_},
            {"ranks", size()},
            {"nodes", host_count()},
            {"round", repetition_}};
}

void Ranks::barrier() {
    guarded("waits for the other ranks", [] { MPI_Barrier(MPI_COMM_WORLD); });
}

void Ranks::allreduce_max(std::span<double> values) {
    guarded("waits for the other ranks' times", [&] {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                      MPI_MAX, MPI_COMM_WORLD);
    });
}

void Ranks::allreduce_sum(std::span<std::uint64_t> values) {
    guarded("waits for the other ranks' counts", [&] {
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT64_T,
                      MPI_SUM, MPI_COMM_WORLD);
    });
}

std::vector<double> Ranks::gather(double local) {
    std::vector<double> all(is_root() ? hosts_.size() : 0);
    guarded("waits for the other ranks' times", [&] {
        MPI_Gather(&local, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    });
    return all;
}

void Ranks::broadcast(std::uint64_t& value) {
    guarded("waits for rank 0", [&] { MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD); });
}

std::vector<std::string> Ranks::gather(const std::string& local) {
    return guarded("waits for every rank's results", [&] { return transport_.gather(local); });
}

Histogram Ranks::merge_histograms(const Histogram& local) {
    std::vector<std::uint64_t> counts(local.counts().begin(), local.counts().end());
    allreduce_sum(counts);
    Histogram all;
    all.merge(counts);
    return all;
}

void Ranks::check(int status, const char* action, const std::string& file) {
    if (status == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(status, text, &length);
    fail(fmt::format("cannot {} {}: {}", action, file,
                     std::string(text, static_cast<std::size_t>(length))),
         "check on every host that the folder exists, is writable and has space");
}

void Ranks::fail(const std::string& message, const std::string& fix) {
    sink.failure(fmt::format("rank {} on {}: {}", rank_, host(rank_), message), fix,
                 {.host = host(rank_), .rank = rank_});
    transport_.abort(exit_unusable);
    __builtin_unreachable();
}

void Ranks::progress(double done, const std::string& label) {
    const Nanoseconds time = now();
    if (!is_root() || time - last_progress_ < progress_interval) return;
    last_progress_ = time;
    const double share = std::clamp(done, 0.0, 1.0);
    sink.progress(share, label, share > 0 ? seconds(time - start_) * (1 - share) / share : -1);
}

// Runs on the watchdog's thread while the main thread is inside MPI, so it ends the process itself.
void Ranks::report_stall() {
    const std::string this_host = hosts_.empty() || host(rank_).empty() ? host_name() : host(rank_);
    sink.failure(fmt::format("rank {} on {} {} for more than {:.0f} s", rank_, this_host, action_,
                             seconds(limit_)),
                 "check that the file system responds on every host, or raise --timeout",
                 {.host = this_host, .rank = rank_});
    _exit(exit_unusable);
}

void with_ranks(Bench& bench, const Measurement& measurement, const Options& options,
                const std::function<void(Ranks&)>& body) {
    const bool is_root = bench.transport.rank() == 0;
    try {
        Ranks ranks(bench, measurement, options);
        body(ranks);
    } catch (const Error&) {
        if (is_root) throw;
    }
}

MpiFile::MpiFile(Ranks& ranks, MPI_Comm comm, std::string path, int mode)
    : ranks_(ranks), path_(std::move(path)) {
    const int status = ranks.guarded("opens a file", [&] {
        return MPI_File_open(comm, path_.c_str(), mode, MPI_INFO_NULL, &handle_);
    });
    ranks.check(status, "open", path_);
}

void MpiFile::sync() {
    ranks_.check(ranks_.guarded("syncs a file", [&] { return MPI_File_sync(handle_); }), "sync",
                 path_);
}

void MpiFile::close() {
    ranks_.check(ranks_.guarded("closes a file", [&] { return MPI_File_close(&handle_); }), "close",
                 path_);
}

void remove_file(Ranks& ranks, const std::string& path) {
    remove_own_file(ranks, ranks.is_root() ? path : "");
}

void remove_own_file(Ranks& ranks, const std::string& path) {
    ranks.barrier();
    if (!path.empty())
        ranks.guarded("removes a file", [&] { MPI_File_delete(path.c_str(), MPI_INFO_NULL); });
    ranks.barrier();
}

}  // namespace assay::storage
