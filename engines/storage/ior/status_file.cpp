// Writes and reads the status file of a stonewalled write: a text file with one number a line, the
// transfers of rank 0, 1, ...
#include "storage/ior/status_file.hpp"

#include <fmt/format.h>

#include <fstream>

namespace assay::storage {

void store_status(Ranks& ranks, const Plan& plan, const std::vector<std::uint64_t>& transfers) {
    if (ranks.is_root()) {
        std::ofstream file(plan.status_file);
        for (const std::uint64_t count : transfers) file << count << '\n';
        if (!file.flush())
            ranks.fail(fmt::format("cannot write the status file {}", plan.status_file),
                       "give a file in a folder that exists and is writable");
    }
    ranks.barrier();
}

std::vector<std::uint64_t> load_status(Ranks& ranks, const Plan& plan) {
    std::vector<std::uint64_t> transfers(static_cast<std::size_t>(ranks.size()), 0);
    if (ranks.is_root()) {
        std::ifstream file(plan.status_file);
        std::uint64_t surplus = 0;
        bool is_complete = file.is_open();
        for (std::uint64_t& count : transfers)
            is_complete = is_complete && file >> count && count <= plan.transfers();
        if (!is_complete || file >> surplus)
            ranks.fail(
                fmt::format("{} does not hold the transfers of {} ranks, at most {} each",
                            plan.status_file, ranks.size(), plan.transfers()),
                "write it first: -w -D SECONDS with the same -b, -t, -s and number of ranks");
    }
    ranks.allreduce_sum(transfers);
    return transfers;
}

}  // namespace assay::storage
