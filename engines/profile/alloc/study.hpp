// The common parts of the allocator benchmarks: parses the allocator from the options, runs tasks
// in processes and writes records.
#pragma once

#include <optional>
#include <string>

#include "core/options.hpp"
#include "core/record.hpp"
#include "profile/alloc/spawn.hpp"

namespace assay::alloc {

Allocator parse_allocator(const Options&);

class Study {
public:
    Study(const Measurement&, const Options&, Bench&);

    // Runs a task in `processes` processes, one after the other. Returns nothing, and writes a
    // waived record of `metric`, if one of them fails or `bytes` exceed the available memory.
    std::optional<Samples> run(const Task&, int processes, std::uint64_t bytes,
                               std::string_view metric, const Json& params);
    void report(std::string_view metric, const Json& params, const std::vector<double>& samples);
    void report(std::string_view metric, const Json& params, const Summary& summary);
    // Reports progress. Call it before each of `cases` cases, with the number of finished cases.
    void progress(std::size_t finished, std::size_t cases, const std::string& label);

    double tick_s() const { return tick_s_; }

private:
    Json add_allocator_name(const Json& params) const;

    const Measurement& measurement_;
    Sink& sink_;
    Allocator allocator_;
    double limit_s_, tick_s_;
    Subject subject_;
    Nanoseconds begin_;
};

}  // namespace assay::alloc
