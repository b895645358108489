// Reads the options of an IOR test, checks them, and computes file offsets and the rank whose data
// a rank reads.
#include "storage/ior/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "core/error.hpp"

namespace assay::storage {

std::uint64_t Plan::offset(std::uint64_t k, int rank, int ranks) const {
    const std::uint64_t per_block = block / transfer;
    const std::uint64_t segment = k / per_block, offset_in_block = k % per_block * transfer;
    if (file_per_process) return segment * block + offset_in_block;
    return (segment * static_cast<std::uint64_t>(ranks) + static_cast<std::uint64_t>(rank)) *
               block +
           offset_in_block;
}

std::string Plan::file_of(int rank) const {
    return file_per_process ? fmt::format("{}.{:08}", file, rank) : file;
}

std::vector<std::uint64_t> Plan::transfer_order() const {
    std::vector<std::uint64_t> numbers(transfers());
    std::iota(numbers.begin(), numbers.end(), 0);
    if (random) std::ranges::shuffle(numbers, std::mt19937_64(signature + 1));
    return numbers;
}

Json Plan::params() const {
    Json params = {{"transfer", transfer},
                   {"block", block},
                   {"segments", segments},
                   {"layout", file_per_process ? "file per process" : "shared file"},
                   {"calls", collective ? "collective" : "independent"},
                   {"order", random ? "random" : "sequential"},
                   {"fsync", fsync}};
    if (packet != Packet::random) params["packet"] = name_of(packet);
    if (stonewall_s > 0) params["stonewall"] = stonewall_s;
    if (stonewall_transfers) params["stonewall_transfers"] = stonewall_transfers;
    if (wear_out) params["wear_out"] = true;
    if (fsync_each) params["fsync_each"] = true;
    if (view) params["view"] = true;
    return params;
}

namespace {

// Throws Error for options that contradict each other.
void check(const Plan& plan) {
    if (plan.file.empty())
        throw Error("no file given", "give a path that every rank can reach: --file /scratch/t");
    if (!plan.write && plan.signature == 0)
        throw Error(
            "nothing is written, and the signature of the existing file is not given",
            "write it first with --keep --signature N, then give the same --signature here (-G)");
    if (plan.reorder && plan.reorder_random)
        throw Error("reading is reordered in two ways (-C and -Z)", "give only one of them");
    if (!plan.status_file.empty() && plan.write && !plan.is_stonewalled())
        throw Error("there is nothing to store in the status file: the write has no stonewall",
                    "give its time, e.g. -D 30");
    // MPI_File_sync is collective, but at a stonewall the ranks have made different numbers of
    // writes.
    if (plan.fsync_each && plan.stonewall_s > 0 && !plan.file_per_process)
        throw Error("a shared file cannot be synced after each write and stonewalled (-Y and -D)",
                    "leave out one of them, or write a file per process (-F)");
    if (plan.wear_out && plan.stonewall_s <= 0)
        throw Error("wear-out needs the time of the stonewall (stoneWallingWearOut without -D)",
                    "give it, e.g. -D 30");
}

}  // namespace

std::vector<Plan> read_plans(const Options& options) {
    Plan plan{
        .file = options.text("file"),
        .status_file = options.text("status_file"),
        .transfer = 0,
        .block = static_cast<std::uint64_t>(options.integer("block")),
        .segments = static_cast<std::uint64_t>(options.integer("segments")),
        .repetitions = options.integer("repetitions"),
        // As in IOR, -1 and 4294967295 are the same signature.
        .signature = static_cast<std::uint32_t>(options.integer("signature")),
        .packet = read_packet(options.text("packet")),
        .stonewall_transfers = static_cast<std::uint64_t>(options.integer("stonewall_transfers")),
        .stonewall_s = static_cast<double>(options.integer("stonewall")),
        .delay_s = static_cast<double>(options.integer("delay")),
        .random_seed = options.integer("random_seed"),
        .task_offset = static_cast<int>(options.integer("task_offset")),
        .write = options.flag("write"),
        .read = options.flag("read"),
        .check_write = options.flag("check_write"),
        .check_read = options.flag("check_read"),
        .read_own = options.flag("read_own"),
        .collective = options.flag("collective"),
        .reorder = options.flag("reorder"),
        .barriers = options.flag("barriers"),
        .keep = options.flag("keep"),
        .fsync = options.flag("fsync"),
        .file_per_process = options.flag("file_per_process"),
        .random = options.flag("random"),
        .preallocate = options.flag("preallocate"),
        .reorder_random = options.flag("reorder_random"),
        .wear_out = options.flag("wear_out"),
        .existing = options.flag("existing"),
        .fsync_each = options.flag("fsync_each"),
        .view = options.flag("view")};
    if (!plan.write && !plan.read && !plan.check_write && !plan.check_read)
        plan.write = plan.read = true;  // as IOR does
    if (plan.check_read) plan.read = true;
    if (!plan.reorder) plan.read_own = false;  // own data are read anyway
    check(plan);
    const std::vector<std::int64_t> sizes = options.integers("transfer");
    const std::uint64_t block = plan.block;
    std::vector<Plan> plans;
    for (const std::int64_t size : sizes) {
        plan.transfer = static_cast<std::uint64_t>(size);
        plan.block =
            sizes.size() > 1 ? (block + plan.transfer - 1) / plan.transfer * plan.transfer : block;
        if (plan.block % plan.transfer)
            throw Error(
                fmt::format("a block of {} B is not a multiple of a transfer of {} B", plan.block,
                            plan.transfer),
                "choose a block (-b) that is a multiple of the transfer (-t), e.g. -t 32k -b 192m");
        plans.push_back(plan);
    }
    return plans;
}

namespace {

// A random distance in ranks: at least `node_shift` nodes, and less than the number of ranks, as in
// IOR.
int random_shift(int rank, const Plan& plan, const Ranks& ranks, int node_shift,
                 std::int64_t repetition) {
    const int least = std::min(node_shift, ranks.host_count() - 1) * ranks.ranks_on_first_host();
    const std::int64_t seed =
        plan.random_seed < 0 ? repetition - plan.random_seed : plan.random_seed;
    std::mt19937_64 random(static_cast<std::uint64_t>(seed + rank));
    return std::uniform_int_distribution<int>(std::min(least, ranks.size() - 1),
                                              ranks.size() - 1)(random);
}

}  // namespace

int writer_read_by(int rank, const Plan& plan, const Ranks& ranks, int node_shift,
                   std::int64_t repetition) {
    if (plan.reorder_random)
        return (rank + random_shift(rank, plan, ranks, node_shift, repetition)) % ranks.size();
    if (!plan.reorder) return rank;
    const int step = ranks.host_count() > 1 ? ranks.ranks_on_first_host() : 1;
    return static_cast<int>((rank + std::int64_t{node_shift} * step) % ranks.size());
}

}  // namespace assay::storage
