#include "storage/ior/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/error.hpp"

namespace assay::storage {

std::uint64_t Plan::offset(std::uint64_t k, int rank, int ranks) const {
    const std::uint64_t per_block = block / transfer;
    const std::uint64_t segment = k / per_block, within = k % per_block * transfer;
    if (file_per_process) return segment * block + within;
    return (segment * static_cast<std::uint64_t>(ranks) + static_cast<std::uint64_t>(rank)) *
               block +
           within;
}

std::string Plan::file_of(int rank) const {
    return file_per_process ? fmt::format("{}.{:08}", file, rank) : file;
}

std::vector<std::uint64_t> Plan::order() const {
    std::vector<std::uint64_t> numbers(transfers());
    std::iota(numbers.begin(), numbers.end(), 0);
    if (random) std::ranges::shuffle(numbers, std::mt19937_64(signature + 1));
    return numbers;
}

Json Plan::params() const {
    return {{"transfer", transfer},
            {"block", block},
            {"segments", segments},
            {"layout", file_per_process ? "file per process" : "shared file"},
            {"calls", collective ? "collective" : "independent"},
            {"order", random ? "random" : "sequential"},
            {"fsync", fsync}};
}

std::vector<Plan> read_plans(const Options& options) {
    Plan plan{.file = options.text("file"),
              .transfer = 0,
              .block = static_cast<std::uint64_t>(options.integer("block")),
              .segments = static_cast<std::uint64_t>(options.integer("segments")),
              .repetitions = options.integer("repetitions"),
              .signature = static_cast<std::uint64_t>(options.integer("signature")),
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
              .preallocate = options.flag("preallocate")};
    if (plan.file.empty())
        throw Error("no file given", "give a path that every rank can reach: --file /scratch/t");
    if (!plan.write && !plan.read && !plan.check_write && !plan.check_read)
        plan.write = plan.read = true;  // as IOR does
    if (plan.check_read) plan.read = true;
    if (!plan.reorder) plan.read_own = false;  // own data are read anyway
    if (!plan.write && plan.signature == 0)
        throw Error(
            "nothing is written, and the signature of the existing file is not given",
            "write it first with --keep --signature N, then give the same --signature here (-G)");
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

int writer_read_by(int rank, const Plan& plan, const Ranks& ranks, int node_shift) {
    if (!plan.reorder) return rank;
    const int step = ranks.hosts() > 1 ? ranks.ranks_on_first() : 1;
    return static_cast<int>((rank + std::int64_t{node_shift} * step) % ranks.size());
}

}  // namespace assay::storage
