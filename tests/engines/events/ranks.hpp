// Runs events.build as threads over the null transport, with planted faults, and reads its records.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/options.hpp"
#include "core/record.hpp"
#include "events/measurements.hpp"
#include "transport/null.hpp"

namespace assay::events {

class EventBuilderRun {
public:
    EventBuilderRun(int ranks, const Faults& faults, std::vector<std::string> arguments)
        : file_(memfd_create("records", 0)), sink_(file_) {
        const Options options = Options::parse(build, std::move(arguments));
        try {
            run_null_ranks(ranks, faults, [&](Transport& transport) {
                Bench bench{sink_, transport};
                build.run(options, bench);
            });
        } catch (const Aborted&) {
            aborted = true;
        }
        std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
        if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
            text.clear();
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = text.find('\n', begin);
            records.push_back(Json::parse(text.substr(begin, end - begin)));
            begin = end + 1;
        }
        close(file_);
    }

    // The records of a metric.
    std::vector<Json> records_of(const std::string& metric,
                                 const std::string& name = "events.build") const {
        std::vector<Json> selected;
        for (const Json& record : records)
            if (record.value("metric", "") == metric && record.value("name", "") == name)
                selected.push_back(record);
        return selected;
    }
    // The value of a metric that is written once; -1 if it is not.
    double value(const std::string& metric) const {
        const std::vector<Json> matching = records_of(metric);
        return matching.size() == 1 ? matching[0]["summary"]["median"].get<double>() : -1;
    }
    // Whether the totals are consistent: no more fragments are accounted for than the events have.
    bool balances(double sources) const {
        return value("fragments_built") + value("fragments_partial") + value("fragments_lost") +
                   value("fragments_corrupt") <=
               (value("events_built") + value("events_incomplete")) * sources;
    }

    // The message of the failure record of a rank that has ended the job; empty: there is none.
    std::string failure() const {
        for (const Json& record : records)
            if (record["kind"] == "failure") return record["problem"];
        return "";
    }

    std::vector<Json> records;
    bool aborted = false;

private:
    int file_;
    Sink sink_;
};

// Links of 1 GB/s with a delay, in simulated time, which does not depend on the machine.
inline Faults links_of_1_gb_per_s() {
    Faults faults;
    faults.rate = 1e9;
    faults.delay = 5'000;
    faults.simulated_time = true;
    return faults;
}

}  // namespace assay::events
