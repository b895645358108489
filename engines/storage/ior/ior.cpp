// The timed part: between a barrier and the last rank's close nothing happens but opening,
// transfers and closing, each timed by the rank itself. A phase takes as long as its longest rank;
// no clock is compared with another's.
#include "storage/ior/ior.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/topology.hpp"
#include "storage/content/content.hpp"
#include "storage/ior/plan.hpp"
#include "storage/ior/results.hpp"

namespace assay::storage {
namespace {

enum class Pass { write, check_write, read_own, read };

struct Results {
    Tally written, own, read;
};

class Runner {
public:
    // `from`, `share`: where in the whole course a repetition begins, and how much of it that is.
    Runner(Ranks& ranks, const Plan& plan, double from, double share)
        : ranks_(ranks),
          plan_(plan),
          order_(plan.order()),
          buffer_(plan.transfer + 8, NodeMemory::any),
          from_(from),
          share_(share / (plan.write + plan.check_write + plan.read_own + plan.read)) {}

    void repeat(std::uint64_t signature, Results& results);

private:
    std::byte* data() const { return static_cast<std::byte*>(buffer_.data()); }
    void pass(Pass pass, std::uint64_t signature, Tally& tally);
    void transfers(Pass pass, File& file, int writer, const Content& content, Tally& tally);
    int call(Pass pass, MPI_File file, std::uint64_t offset) const;
    void located(const Wrong& wrong, std::uint64_t transfer, int writer, Tally& tally) const;
    void say(Nanoseconds at, std::size_t made);
    void preallocate(File& file) const;

    Ranks& ranks_;
    const Plan& plan_;
    std::vector<std::uint64_t> order_;
    NodeMemory buffer_;
    double from_;
    const double share_;  // of a pass
    Nanoseconds said_ = 0;
};

// One line a second from rank 0, also while transfers are timed: whoever waits must see that it
// goes on.
void Runner::say(Nanoseconds at, std::size_t made) {
    if (at - said_ < 1'000'000'000 || !ranks_.first()) return;
    said_ = at;
    ranks_.progress(from_ + share_ * static_cast<double>(made) / static_cast<double>(order_.size()),
                    fmt::format("transfers of {} B", plan_.transfer));
}

int Runner::call(Pass pass, MPI_File file, std::uint64_t offset) const {
    const auto at = static_cast<MPI_Offset>(offset);
    const int bytes = static_cast<int>(plan_.transfer);
    MPI_Status status;
    int result = 0, moved = 0;
    if (pass == Pass::write)
        result = plan_.collective
                     ? MPI_File_write_at_all(file, at, data(), bytes, MPI_BYTE, &status)
                     : MPI_File_write_at(file, at, data(), bytes, MPI_BYTE, &status);
    else
        result = plan_.collective ? MPI_File_read_at_all(file, at, data(), bytes, MPI_BYTE, &status)
                                  : MPI_File_read_at(file, at, data(), bytes, MPI_BYTE, &status);
    if (result != MPI_SUCCESS) return result;
    MPI_Get_count(&status, MPI_BYTE, &moved);
    // A short read is left to the comparison, which says where; a short write nobody would see.
    return moved == bytes || pass != Pass::write ? MPI_SUCCESS : MPI_ERR_NO_SPACE;
}

void Runner::transfers(Pass pass, File& file, int writer, const Content& content, Tally& tally) {
    const bool every_byte = pass == Pass::check_write || (pass != Pass::write && plan_.check_read);
    const char* doing = pass == Pass::write ? "writes" : "reads";
    Nanoseconds last = now();
    const Nanoseconds begin = last;
    Nanoseconds beside = 0;  // the clock: time for comparing
    std::size_t made = 0;
    for (const std::uint64_t k : order_) {
        say(last, made++);
        const std::uint64_t offset = plan_.offset(k, writer, ranks_.size());
        if (pass == Pass::write) content.place(data(), plan_.transfer, offset);
        ranks_.enter(doing, last);
        const int result = call(pass, file.handle(), offset);
        Nanoseconds at = now();
        ranks_.leave();
        if (result != MPI_SUCCESS)
            ranks_.check(result, pass == Pass::write ? "write" : "read", file.path());
        tally.latency.record(at - last);
        if (pass != Pass::write) {
            const auto wrong = every_byte ? content.wrong(data(), plan_.transfer, offset)
                                          : content.misplaced(data(), plan_.transfer, offset);
            if (wrong) located(*wrong, k, writer, tally);
            if (every_byte) {
                const Nanoseconds compared = now();
                beside += compared - at;
                at = compared;
            }
        }
        last = at;
    }
    from_ += share_;
    tally.own = seconds(last - begin - beside);
    tally.beside = seconds(beside);
}

void Runner::located(const Wrong& wrong, std::uint64_t transfer, int writer, Tally& tally) const {
    ++tally.wrong;
    if (tally.located.size() >= located_at_most) return;
    tally.located.push_back({plan_.file_of(plan_.file_per_process ? writer : 0), writer,
                             ranks_.rank(), transfer, wrong});
}

void Runner::preallocate(File& file) const {
    const auto bytes =
        static_cast<MPI_Offset>(plan_.bytes(plan_.file_per_process ? 1 : ranks_.size()));
    const int status = ranks_.guarded("preallocates a file",
                                      [&] { return MPI_File_preallocate(file.handle(), bytes); });
    ranks_.check(status, "preallocate", file.path());
}

void Runner::pass(Pass pass, std::uint64_t signature, Tally& tally) {
    const bool own = pass == Pass::write || pass == Pass::read_own;
    const int further = pass == Pass::check_write ? 2 * plan_.task_offset : plan_.task_offset;
    const int writer = own ? ranks_.rank() : writer_read_by(ranks_.rank(), plan_, ranks_, further);
    const Content content(writer, signature);
    if (pass == Pass::write) content.fill(data(), plan_.transfer);
    const int mode = pass == Pass::write ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY;
    ranks_.barrier();
    const Nanoseconds begin = now();
    File file(ranks_, plan_.file_per_process ? MPI_COMM_SELF : MPI_COMM_WORLD,
              plan_.file_of(writer), mode);
    if (plan_.preallocate && pass == Pass::write) preallocate(file);
    const Nanoseconds opened = now();
    if (plan_.barriers) ranks_.barrier();
    const Nanoseconds started = now();
    transfers(pass, file, writer, content, tally);
    if (plan_.fsync && pass == Pass::write) file.sync();
    const Nanoseconds moved = now();
    if (plan_.barriers) ranks_.barrier();
    const Nanoseconds closing = now();
    file.close();
    const Nanoseconds end = now();
    if (pass == Pass::check_write) return;  // untimed
    double times[] = {seconds(opened - begin), seconds(moved - started) - tally.beside,
                      seconds(end - closing), seconds(end - begin) - tally.beside};
    ranks_.max(times);
    tally.add(times[0], times[1], times[2], times[3], ranks_.gather(tally.own), plan_,
              ranks_.size());
}

void remove_files(Ranks& ranks, const Plan& plan) {
    if (plan.file_per_process) remove_own_file(ranks, plan.file_of(ranks.rank()));
    else remove_file(ranks, plan.file);
}

void Runner::repeat(std::uint64_t signature, Results& results) {
    if (plan_.write) {
        remove_files(ranks_, plan_);
        pass(Pass::write, signature, results.written);
    }
    if (plan_.check_write) {
        Tally compared;
        pass(Pass::check_write, signature, compared);
        results.written.take_wrong(compared);
    }
    if (plan_.read_own) pass(Pass::read_own, signature, results.own);
    if (plan_.read) pass(Pass::read, signature, results.read);
}

// The same number on every rank, and another in every run.
std::uint64_t common_signature(Ranks& ranks, const Plan& plan) {
    std::uint64_t value = plan.signature ? plan.signature : static_cast<std::uint64_t>(now());
    ranks.broadcast(value);
    return value;
}

constexpr const char* own_data = "own";

const char* read_from(const Plan& plan, const Ranks& ranks) {
    const int writer = writer_read_by(0, plan, ranks, plan.task_offset);
    if (writer == 0) return own_data;
    return ranks.host(writer) == ranks.host(0) ? "another rank's" : "another node's";
}

}  // namespace

void detail::run_ior(const Options& options, Bench& bench) {
    with_ranks(bench, ior, options, [&](Ranks& ranks) {
        std::vector<Plan> plans = read_plans(options);
        // Of one rank, or a whole turn further on, there is no other's data: it is not read twice.
        for (Plan& plan : plans)
            if (writer_read_by(0, plan, ranks, plan.task_offset) == 0) plan.read_own = false;
        double done = 0;
        for (const Plan& plan : plans) {
            const double share = 1.0 / static_cast<double>(plans.size());
            Runner runner(ranks, plan, done, share / static_cast<double>(plan.repetitions));
            Results results;
            const std::uint64_t signature = common_signature(ranks, plan);
            for (std::int64_t repetition = 0; repetition < plan.repetitions; ++repetition)
                runner.repeat(
                    signature + (plan.signature ? 0 : static_cast<std::uint64_t>(repetition)),
                    results);
            done += share;
            if (!plan.keep) remove_files(ranks, plan);
            if (plan.write || plan.check_write) report(ranks, plan, "write", "", results.written);
            if (plan.read_own) report(ranks, plan, "read", own_data, results.own);
            if (plan.read) report(ranks, plan, "read", read_from(plan, ranks), results.read);
        }
    });
}

}  // namespace assay::storage
