// Every rank with every other, in rounds: each rank sends to one and receives from one at a time.
//
// A send streams and is timed by its receiver, so that the figure of a pair says what arrived,
// whatever its sender does besides.
#include "core/options.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/sweep.hpp"

namespace assay::network {

void detail::run_all_to_all(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        const std::string& shape = options.text("schedule");
        const Schedule schedule = Schedule::all_to_all(shape, session.size());
        SweepOptions sweep = read_sweep(options, Op::stream);
        sweep.rounds = static_cast<int>(options.integer("rounds"));
        run_sweep(session, all_to_all, std::move(sweep),
                  {.schedule = [&](Op) -> const Schedule& { return schedule; },
                   .lanes = 1,
                   .lanes_here = 1,
                   .initiated_lanes = 1,
                   .params = {{"clients", session.size()}, {"schedule", shape}}});
    });
}

}  // namespace assay::network
