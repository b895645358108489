// network.all_to_all: every rank with every other, in rounds. In a round each rank sends to one
// rank and receives from one.
//
// Sends are streams timed by their receivers, so a pair's bandwidth is the rate of arrival,
// independent of the sender's other work.
#include "core/options.hpp"
#include "network/group.hpp"
#include "network/measurements.hpp"
#include "network/sweep.hpp"

namespace assay::network {

void detail::run_all_to_all(const Options& options, Bench& bench) {
    run_group(options, bench, [&](Session& session) {
        const std::string& shape = options.text("schedule");
        const Schedule schedule =
            shape == "file" ? Schedule::from_file(options.text("schedule_file"), session.size())
                            : Schedule::all_to_all(shape, session.size());
        SweepOptions sweep = parse_sweep(options, Op::stream);
        sweep.rounds = static_cast<int>(options.integer("rounds"));
        run_sweep(session, all_to_all, std::move(sweep),
                  {.schedule = [&](Op) -> const Schedule& { return schedule; },
                   .max_flows = 1,
                   .local_flows = 1,
                   .flows_per_initiator = 1,
                   .params = {{"clients", session.size()}, {"schedule", shape}}});
    });
}

}  // namespace assay::network
