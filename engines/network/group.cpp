// Creates the session of a group measurement and reports its errors once.
#include "network/group.hpp"

#include "core/error.hpp"

namespace assay::network {

void run_group(const Options& options, Bench& bench, const std::function<void(Session&)>& body) {
    const bool is_first_rank = bench.transport.rank() == 0;
    try {
        if (bench.transport.size() < 2)
            throw Error("a network measurement needs at least 2 ranks",
                        "start it under an MPI launcher: mpirun -np 4 assay-probe-openmpi run ...");
        Session session(bench, {static_cast<Nanoseconds>(options.real("timeout") * 1e9),
                                options.integer("yield_us") * 1000});
        body(session);
    } catch (const Error&) {
        if (is_first_rank) throw;
    }
}

}  // namespace assay::network
