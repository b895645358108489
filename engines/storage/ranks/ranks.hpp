// The base of all benchmarks of parallel I/O: the ranks of the job, collectives under a watchdog,
// errors, and open files.
//
// MPI is called directly, not through the transport, because the MPI-IO of this executable's MPI is
// what is measured. Every call that may wait is watched: if it does not return in time, the
// watchdog reports this rank and what it was doing.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface only
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/statistics.hpp"
#include "transport/watchdog.hpp"

namespace assay::storage {

// Parameters of all benchmarks of parallel I/O.
inline constexpr Parameter timeout_parameter{
    "timeout", Kind::real, "s", "120", "time limit of one call", 0.1, 1e6};
inline constexpr Parameter accelerated_parameter{"accelerated", Kind::flag, "", "",
                                                 "fail unless the accelerator is loaded"};
inline constexpr Parameter round_parameter{
    "round", Kind::integer, "", "1", "number of this run in a series", 1, 1e9};

class Ranks {
public:
    // Collective. Aborts the job if --accelerated is given and the accelerator is not loaded.
    Ranks(Bench& bench, const Measurement& measurement, const Options& options);

    Sink& sink;
    const Measurement& measurement;

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(hosts_.size()); }
    bool is_root() const { return rank_ == 0; }
    const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    int host_count() const;
    int ranks_on_first_host() const;  // number of ranks on rank 0's host
    // Parameters of every record of this run: MPI, accelerated or stock, ranks, hosts, repetition
    // ("round").
    Json parameters() const;

    // Makes a call under the watchdog, for calls that may wait for other ranks. The limit is 1.5
    // times that of a transfer, so that a rank whose own transfer hangs reports first. `action`
    // completes the message "rank 3 on n1 ... for more than 120 s", and must outlive the call.
    template <class Call>
    auto guarded(const char* action, Call call) {
        action_ = action;
        watchdog_.enter(now() + limit_ / 2);
        const struct Leave {
            Watchdog& watchdog;
            ~Leave() { watchdog.leave(); }
        } leave{watchdog_};
        return call();
    }
    // For loops of transfers: the watchdog watches from `time` until leave(). The caller passes its
    // own timestamp, which saves a clock call.
    void enter(const char* action, Nanoseconds time) {
        action_ = action;
        watchdog_.enter(time);
    }
    void leave() { watchdog_.leave(); }

    void barrier();
    // Collectives. The reductions are element by element, in place, with the result on every rank.
    void allreduce_max(std::span<double> values);
    void allreduce_sum(std::span<std::uint64_t> values);
    std::vector<double> gather(double local);                   // by rank; on rank 0 only
    std::vector<std::string> gather(const std::string& local);  // by rank; on rank 0 only
    void broadcast(std::uint64_t& value);                       // from rank 0
    Histogram merge_histograms(const Histogram& local);         // of all ranks, on every rank

    // Aborts the job if `status` is an error; the message names the action, the file and
    // MPI's error text.
    void check(int status, const char* action, const std::string& file);
    [[noreturn]] void fail(const std::string& message, const std::string& fix);

    // Reports progress from rank 0, at most 5 times a second, with an estimate of the time left.
    // `done`: the share of the run, 0 to 1.
    void progress(double done, const std::string& label);

private:
    void report_stall();

    int rank_ = 0;
    std::vector<std::string> hosts_;
    std::string library_, io_;
    Transport& transport_;
    std::int64_t repetition_;
    Nanoseconds limit_, start_ = now(), last_progress_ = 0;
    const char* action_ = "";
    Watchdog watchdog_;
};

// Runs `body` with the ranks. All ranks throw the same Error; only rank 0 rethrows it, so that the
// user reads it once.
void with_ranks(Bench& bench, const Measurement& measurement, const Options& options,
                const std::function<void(Ranks&)>& body);

// An open file of the measured MPI-IO. Closing is explicit, since it is timed.
class MpiFile {
public:
    MpiFile(Ranks& ranks, MPI_Comm comm, std::string path, int mode);
    ~MpiFile() {
        if (handle_ != MPI_FILE_NULL) MPI_File_close(&handle_);
    }
    MpiFile(const MpiFile&) = delete;
    MpiFile& operator=(const MpiFile&) = delete;

    MPI_File handle() const { return handle_; }
    const std::string& path() const { return path_; }
    void sync();
    void close();

private:
    Ranks& ranks_;
    std::string path_;
    MPI_File handle_ = MPI_FILE_NULL;
};

// Collective: removes a file between two barriers. remove_file(): rank 0 removes it.
// remove_own_file(): every rank removes its own file, unless its path is empty.
void remove_file(Ranks& ranks, const std::string& path);
void remove_own_file(Ranks& ranks, const std::string& path);

}  // namespace assay::storage
