// Runs an IOR test: repetitions of passes (write, read). A pass begins with a barrier and opens the
// file, makes the transfers and closes the file. Each rank times its own pass; the time of a pass
// is that of the longest rank, so clocks of different ranks are not compared.
//
// A stonewall (IOR's option -D) is a time after which no rank begins another transfer. With
// wear-out all ranks then go on to the number of transfers of the fastest.
#include "storage/ior/ior.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/topology.hpp"
#include "storage/content/content.hpp"
#include "storage/ior/plan.hpp"
#include "storage/ior/results.hpp"
#include "storage/ior/status_file.hpp"

namespace assay::storage {
namespace {

// check_write: reads and compares what was written, untimed. read_own: each rank reads its own
// data.
enum class Pass { write, check_write, read_own, read };

// The results of a plan, by operation.
struct Results {
    Tally written, read_own, read;
};

class Runner {
public:
    // Shares of the whole run, for progress messages. `progress`: done before this plan; `share`:
    // of one repetition.
    Runner(Ranks& ranks, const Plan& plan, double progress, double share)
        : ranks_(ranks),
          plan_(plan),
          order_(plan.transfer_order()),
          buffer_(plan.transfer + 8, NodeMemory::any),
          progress_(progress),
          share_(share / (plan.write + plan.check_write + plan.read_own + plan.read)) {}

    void run_repetition(std::uint64_t signature, std::int64_t repetition, Results& results);

private:
    std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
    void run_pass(Pass pass, std::uint64_t signature, Tally& tally);
    int writer_for(Pass pass) const;
    void make_transfers(Pass pass, MpiFile& file, int writer, const Content& content, Tally& tally);
    void make_transfer(Pass pass, MpiFile& file, int writer, const Content& content,
                       std::uint64_t k, Tally& tally);
    std::uint64_t planned_transfers(Pass pass, int writer) const;
    bool has_reached_stonewall(Pass pass, std::uint64_t done);
    std::uint64_t wear_out(std::uint64_t done, Tally& tally);
    void record_written(std::uint64_t transfers);
    Nanoseconds transferring() const { return last_end_ - begin_ - compare_time_ - wait_time_; }
    int call_mpi_io(Pass pass, MPI_File file, std::uint64_t offset) const;
    void set_view(MpiFile& file, int writer) const;
    void add_mismatch(const Mismatch& mismatch, std::uint64_t transfer, int writer,
                      Tally& tally) const;
    void report_progress(Nanoseconds time, std::size_t done);
    void preallocate(MpiFile& file) const;
    // With a file per process no blocks of other ranks need to be left out by a view.
    bool has_view() const { return plan_.view && !plan_.file_per_process; }

    Ranks& ranks_;
    const Plan& plan_;
    std::vector<std::uint64_t> order_;
    NodeMemory buffer_;
    double progress_;     // share of the run that is done
    const double share_;  // of the run that a pass is
    Nanoseconds last_report_ = 0;
    std::int64_t repetition_ = 0;
    std::vector<std::uint64_t> written_;  // by rank: transfers of a stonewalled write
    // Of the present pass: the begin of the first transfer, the end of the last one, and between
    // them the time for comparing and the wait at the stonewall.
    Nanoseconds begin_ = 0, last_end_ = 0, compare_time_ = 0, wait_time_ = 0;
};

// Reports progress from rank 0 once a second, also while transfers are timed.
void Runner::report_progress(Nanoseconds time, std::size_t done) {
    if (time - last_report_ < 1'000'000'000 || !ranks_.is_root()) return;
    last_report_ = time;
    ranks_.progress(
        progress_ + share_ * static_cast<double>(done) / static_cast<double>(order_.size()),
        fmt::format("transfers of {} B", plan_.transfer));
}

int Runner::call_mpi_io(Pass pass, MPI_File file, std::uint64_t offset) const {
    const auto file_offset = static_cast<MPI_Offset>(offset);
    const int bytes = static_cast<int>(plan_.transfer);
    MPI_Status status;
    int result = 0, bytes_moved = 0;
    if (pass == Pass::write)
        result = plan_.collective
                     ? MPI_File_write_at_all(file, file_offset, data(), bytes, MPI_BYTE, &status)
                     : MPI_File_write_at(file, file_offset, data(), bytes, MPI_BYTE, &status);
    else
        result = plan_.collective
                     ? MPI_File_read_at_all(file, file_offset, data(), bytes, MPI_BYTE, &status)
                     : MPI_File_read_at(file, file_offset, data(), bytes, MPI_BYTE, &status);
    if (result != MPI_SUCCESS) return result;
    MPI_Get_count(&status, MPI_BYTE, &bytes_moved);
    // A short read is found by the comparison, which locates it; a short write must be an error
    // here.
    return bytes_moved == bytes || pass != Pass::write ? MPI_SUCCESS : MPI_ERR_NO_SPACE;
}

// Makes the k-th transfer, and sets or checks its data. It is timed from the end of the previous
// one.
void Runner::make_transfer(Pass pass, MpiFile& file, int writer, const Content& content,
                           std::uint64_t k, Tally& tally) {
    const bool every_byte = pass == Pass::check_write || (pass != Pass::write && plan_.check_read);
    const std::uint64_t offset = plan_.offset(k, writer, ranks_.size());
    if (pass == Pass::write) content.stamp_transfer(data(), plan_.transfer, offset);
    ranks_.enter(pass == Pass::write ? "writes" : "reads", last_end_);
    // A view counts in transfers.
    const int result = call_mpi_io(pass, file.handle(), has_view() ? k : offset);
    if (plan_.fsync_each && pass == Pass::write && result == MPI_SUCCESS) file.sync();
    const Nanoseconds finish = now();
    ranks_.leave();
    if (result != MPI_SUCCESS)
        ranks_.check(result, pass == Pass::write ? "write" : "read", file.path());
    tally.latency.record(finish - last_end_);
    last_end_ = finish;
    if (pass == Pass::write) return;
    const auto mismatch = every_byte ? content.check_bytes(data(), plan_.transfer, offset)
                                     : content.check_pages(data(), plan_.transfer, offset);
    if (mismatch) add_mismatch(*mismatch, k, writer, tally);
    if (!every_byte) return;
    last_end_ = now();
    compare_time_ += last_end_ - finish;
}

// The number of transfers of this rank, unless a stonewall ends the pass. Blocks that a stonewalled
// write has not written are not read.
std::uint64_t Runner::planned_transfers(Pass pass, int writer) const {
    if (pass != Pass::write && !written_.empty()) return written_[static_cast<std::size_t>(writer)];
    return plan_.stonewall_transfers ? std::min(plan_.stonewall_transfers, plan_.transfers())
                                     : plan_.transfers();
}

// Whether the time of the stonewall is over. With collective calls rank 0 decides, since all ranks
// must make the same number of calls.
bool Runner::has_reached_stonewall(Pass pass, std::uint64_t done) {
    if (plan_.stonewall_s <= 0 || pass == Pass::check_write || done == 0) return false;
    std::uint64_t is_over = seconds(transferring()) > plan_.stonewall_s;
    if (plan_.collective) ranks_.broadcast(is_over);
    return is_over;
}

// Called at the stonewall, with the number of this rank's transfers. Returns the number of
// transfers of the fastest rank, which all ranks now make (IOR's stoneWallingWearOut).
std::uint64_t Runner::wear_out(std::uint64_t done, Tally& tally) {
    std::uint64_t sum[] = {done};
    double maxima[] = {static_cast<double>(done), seconds(transferring())};
    ranks_.allreduce_max(maxima);
    ranks_.allreduce_sum(sum);
    tally.stonewall_bandwidth.push_back(static_cast<double>(sum[0] * plan_.transfer) / maxima[1]);
    wait_time_ = now() - last_end_;
    last_end_ += wait_time_;
    return static_cast<std::uint64_t>(maxima[0]);
}

void Runner::record_written(std::uint64_t transfers) {
    written_.assign(static_cast<std::size_t>(ranks_.size()), 0);
    written_[static_cast<std::size_t>(ranks_.rank())] = transfers;
    ranks_.allreduce_sum(written_);
    if (!plan_.status_file.empty()) store_status(ranks_, plan_, written_);
}

void Runner::make_transfers(Pass pass, MpiFile& file, int writer, const Content& content,
                            Tally& tally) {
    const std::uint64_t count = planned_transfers(pass, writer);
    std::uint64_t done = 0;
    const auto next = [&] {
        report_progress(last_end_, done);
        make_transfer(pass, file, writer, content, order_[done++], tally);
    };
    begin_ = last_end_ = now();
    compare_time_ = wait_time_ = 0;
    while (done < count && !has_reached_stonewall(pass, done)) next();
    if (plan_.wear_out && pass != Pass::check_write)
        for (const std::uint64_t all = std::min(count, wear_out(done, tally)); done < all;) next();
    progress_ += share_;
    tally.own_s = seconds(transferring());
    tally.compare_s = seconds(compare_time_);
    tally.own_transfers = done;
}

void Runner::add_mismatch(const Mismatch& mismatch, std::uint64_t transfer, int writer,
                          Tally& tally) const {
    ++tally.wrong;
    if (tally.mismatches.size() >= max_mismatches) return;
    tally.mismatches.push_back({plan_.file_of(plan_.file_per_process ? writer : 0), writer,
                                ranks_.rank(), transfer, mismatch});
}

void Runner::preallocate(MpiFile& file) const {
    const auto bytes =
        static_cast<MPI_Offset>(plan_.bytes(plan_.file_per_process ? 1 : ranks_.size()));
    const int status = ranks_.guarded("preallocates a file",
                                      [&] { return MPI_File_preallocate(file.handle(), bytes); });
    ranks_.check(status, "preallocate", file.path());
}

// Sets a file view that consists of the blocks of `writer`, one of each segment.
void Runner::set_view(MpiFile& file, int writer) const {
    MPI_Datatype transfer, block, blocks;
    MPI_Type_contiguous(static_cast<int>(plan_.transfer), MPI_BYTE, &transfer);
    MPI_Type_contiguous(static_cast<int>(plan_.block / plan_.transfer), transfer, &block);
    MPI_Type_create_resized(
        block, 0, static_cast<MPI_Aint>(plan_.block) * static_cast<MPI_Aint>(ranks_.size()),
        &blocks);
    MPI_Type_commit(&transfer);
    MPI_Type_commit(&blocks);
    const auto first = static_cast<MPI_Offset>(plan_.block) * writer;
    const int status = ranks_.guarded("sets a file view", [&] {
        return MPI_File_set_view(file.handle(), first, transfer, blocks, "native", MPI_INFO_NULL);
    });
    ranks_.check(status, "set a view of", file.path());
    for (MPI_Datatype* type : {&transfer, &block, &blocks}) MPI_Type_free(type);
}

// The rank whose data this rank writes or reads.
int Runner::writer_for(Pass pass) const {
    if (pass == Pass::write || pass == Pass::read_own) return ranks_.rank();
    const int node_shift = pass == Pass::check_write ? 2 * plan_.task_offset : plan_.task_offset;
    return writer_read_by(ranks_.rank(), plan_, ranks_, node_shift, repetition_);
}

void Runner::run_pass(Pass pass, std::uint64_t signature, Tally& tally) {
    const int writer = writer_for(pass);
    const Content content(writer, signature, plan_.packet);
    if (pass == Pass::write) content.fill(data(), plan_.transfer);
    if (pass != Pass::check_write)
        std::this_thread::sleep_for(std::chrono::duration<double>(plan_.delay_s));
    const int mode = pass == Pass::write ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
    ranks_.barrier();
    const Nanoseconds begin = now();
    MpiFile file(ranks_, plan_.file_per_process ? MPI_COMM_SELF : MPI_COMM_WORLD,
                 plan_.file_of(writer), mode);
    if (plan_.preallocate && pass == Pass::write) preallocate(file);
    if (has_view()) set_view(file, writer);
    const Nanoseconds opened = now();
    if (plan_.barriers) ranks_.barrier();
    const Nanoseconds started = now();
    make_transfers(pass, file, writer, content, tally);
    if (plan_.fsync && pass == Pass::write) file.sync();
    const Nanoseconds transferred = now();
    if (plan_.barriers) ranks_.barrier();
    const Nanoseconds closing = now();
    file.close();
    const Nanoseconds end = now();
    if (pass == Pass::check_write) return;  // untimed
    if (pass == Pass::write && plan_.is_stonewalled()) record_written(tally.own_transfers);
    std::uint64_t transfers[] = {tally.own_transfers};
    ranks_.allreduce_sum(transfers);
    double times[] = {seconds(opened - begin), seconds(transferred - started) - tally.compare_s,
                      seconds(end - closing), seconds(end - begin) - tally.compare_s};
    ranks_.allreduce_max(times);
    tally.add(times[0], times[1], times[2], times[3], ranks_.gather(tally.own_s), plan_,
              transfers[0]);
}

void remove_files(Ranks& ranks, const Plan& plan) {
    if (plan.file_per_process) remove_own_file(ranks, plan.file_of(ranks.rank()));
    else remove_file(ranks, plan.file);
}

void Runner::run_repetition(std::uint64_t signature, std::int64_t repetition, Results& results) {
    repetition_ = repetition;
    if (!plan_.write && !plan_.status_file.empty()) written_ = load_status(ranks_, plan_);
    if (plan_.write) {
        if (!plan_.existing) remove_files(ranks_, plan_);
        run_pass(Pass::write, signature, results.written);
    }
    if (plan_.check_write) {
        Tally compared;
        run_pass(Pass::check_write, signature, compared);
        results.written.add_mismatches(compared);
    }
    if (plan_.read_own) run_pass(Pass::read_own, signature, results.read_own);
    if (plan_.read) run_pass(Pass::read, signature, results.read);
}

// The seed of the data: the same on all ranks and, unless the user gives it, different in every
// run.
std::uint64_t common_signature(Ranks& ranks, const Plan& plan) {
    std::uint64_t value = plan.signature ? plan.signature : static_cast<std::uint64_t>(now());
    ranks.broadcast(value);
    return value;
}

constexpr const char* own_data = "own";

// Describes whose data are read, for the records.
const char* read_from(const Plan& plan, const Ranks& ranks) {
    if (plan.reorder_random) return "a random rank's";
    const int writer = writer_read_by(0, plan, ranks, plan.task_offset, 0);
    if (writer == 0) return own_data;
    return ranks.host(writer) == ranks.host(0) ? "another rank's" : "another node's";
}

}  // namespace

void detail::run_ior(const Options& options, Bench& bench) {
    with_ranks(bench, ior, options, [&](Ranks& ranks) {
        std::vector<Plan> plans = read_plans(options);
        // If every rank reads its own data anyway (with one rank, or if the offset is a multiple of
        // the number of ranks), they are not read twice.
        for (Plan& plan : plans)
            if (writer_read_by(0, plan, ranks, plan.task_offset, 0) == 0) plan.read_own = false;
        double done = 0;
        for (const Plan& plan : plans) {
            const double share = 1.0 / static_cast<double>(plans.size());
            Runner runner(ranks, plan, done, share / static_cast<double>(plan.repetitions));
            Results results;
            const std::uint64_t signature = common_signature(ranks, plan);
            for (std::int64_t repetition = 0; repetition < plan.repetitions; ++repetition)
                runner.run_repetition(
                    signature + (plan.signature ? 0 : static_cast<std::uint64_t>(repetition)),
                    repetition, results);
            done += share;
            if (!plan.keep) remove_files(ranks, plan);
            if (plan.write || plan.check_write) report(ranks, plan, "write", "", results.written);
            if (plan.read_own) report(ranks, plan, "read", own_data, results.read_own);
            if (plan.read) report(ranks, plan, "read", read_from(plan, ranks), results.read);
        }
    });
}

}  // namespace assay::storage
