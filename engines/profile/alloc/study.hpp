// What the studies have in common: an allocator out of the options, processes that work a task,
// records.
#pragma once

#include <optional>
#include <string>

#include "core/options.hpp"
#include "core/record.hpp"
#include "profile/alloc/spawn.hpp"

namespace assay::alloc {

Allocator allocator_of(const Options&);

class Study {
public:
    Study(const Measurement&, const Options&, Bench&);

    // The same task in `processes` processes; none, with a record that says why, where one of them
    // fails or where `bytes` would not fit into memory. `metric` is what that record is of.
    std::optional<Samples> work(const Task&, int processes, std::uint64_t bytes,
                                std::string_view metric, const Json& params);
    void report(std::string_view metric, const Json& params, const std::vector<double>& samples);
    void report(std::string_view metric, const Json& params, const Summary& summary);
    // Said before each case of `cases`.
    void progress(std::size_t done, std::size_t cases, const std::string& label);

    double tick_s() const { return tick_s_; }

private:
    Json with_name(const Json& params) const;

    const Measurement& measurement_;
    Sink& sink_;
    Allocator allocator_;
    double limit_s_, tick_s_;
    Subject subject_;
    Nanoseconds begin_;
};

}  // namespace assay::alloc
