// A storage benchmark as one rank sees it: who the others are, how long a call may take, and how to
// stop.
//
// MPI itself is called here, not the transport: what is measured is the MPI-IO of the MPI that this
// executable was built with, and its collectives belong to it. Every call that may wait stands
// under a watchdog, which names this rank and what it was doing when the call does not come back.
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

// Parameters that all benchmarks of parallel I/O have.
inline constexpr Parameter timeout_parameter{
    "timeout", Kind::real, "s", "120", "longest that one call may take", 0.1, 1e6};
inline constexpr Parameter accelerated_parameter{
    "accelerated", Kind::flag, "", "", "refuse to measure unless the accelerator is loaded"};
inline constexpr Parameter round_parameter{
    "round", Kind::integer, "", "1", "which of several runs this is", 1, 1e9};

class Ranks {
public:
    // Collective. Ends the job where the accelerator is wanted and is not loaded.
    Ranks(Bench& bench, const Measurement& measurement, const Options& options);

    Sink& sink;
    const Measurement& measurement;

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(hosts_.size()); }
    bool first() const { return rank_ == 0; }
    const std::string& host(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }
    int hosts() const;           // how many different ones
    int ranks_on_first() const;  // ranks on the first of them
    // What every record of this run says of it: MPI, accelerated or stock, ranks, hosts, round.
    Json about() const;

    // Around calls that may wait for other ranks: half as long again as an own transfer, so that a
    // rank whose own call does not come back speaks first. `doing` outlives the call.
    template <class Call>
    auto guarded(const char* doing, Call call) {
        doing_ = doing;
        watchdog_.enter(now() + limit_ / 2);
        const struct Leave {
            Watchdog& watchdog;
            ~Leave() { watchdog.leave(); }
        } leave{watchdog_};
        return call();
    }
    // For loops of own transfers: each is given a time of its own, without the price of a second
    // clock.
    void enter(const char* doing, Nanoseconds at) {
        doing_ = doing;
        watchdog_.enter(at);
    }
    void leave() { watchdog_.leave(); }

    void barrier();
    void max(std::span<double> values);
    void sum(std::span<std::uint64_t> values);
    std::vector<double> gather(double mine);  // filled on rank 0 only
    void broadcast(std::uint64_t& value);     // from rank 0
    std::vector<std::string> gather(const std::string& mine);
    Histogram merged(const Histogram& mine);  // of all ranks, on every rank

    // Ends the job when an MPI call has failed: what was being done, to which file, and MPI's own
    // words.
    void check(int status, const char* doing, const std::string& file);
    [[noreturn]] void fail(const std::string& what, const std::string& fix);

    // From rank 0, at most 5 a second; the time left is reckoned from what is done.
    void progress(double done, const std::string& label);

private:
    void stalled();

    int rank_ = 0;
    std::vector<std::string> hosts_;
    std::string library_, io_;
    Transport& transport_;
    std::int64_t round_;
    Nanoseconds limit_, begun_ = now(), last_progress_ = 0;
    const char* doing_ = "";
    Watchdog watchdog_;
};

// Makes the ranks and runs `body`. An Error is thrown by every rank alike; rank 0 passes it on, so
// that the user reads it once.
void with_ranks(Bench& bench, const Measurement& measurement, const Options& options,
                const std::function<void(Ranks&)>& body);

// An open file; closing is explicit, since it is timed.
class File {
public:
    File(Ranks& ranks, MPI_Comm comm, std::string path, int mode);
    ~File() {
        if (handle_ != MPI_FILE_NULL) MPI_File_close(&handle_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    MPI_File handle() const { return handle_; }
    const std::string& path() const { return path_; }
    void sync();
    void close();

private:
    Ranks& ranks_;
    std::string path_;
    MPI_File handle_ = MPI_FILE_NULL;
};

// Collective: rank 0 removes the file, or every rank its own, where there is one; no rank goes on
// before that.
void remove_file(Ranks& ranks, const std::string& path);
void remove_own_file(Ranks& ranks, const std::string& path);

}  // namespace assay::storage
