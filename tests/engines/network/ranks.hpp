// Ranks as threads over the null transport, and the records that they write, for the tests of the
// engine.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "core/record.hpp"
#include "network/session.hpp"
#include "transport/null.hpp"

namespace assay::network {

// Long enough that a loaded machine does not trip it; a test that hangs still ends.
inline constexpr Patience patient{20'000'000'000, 0};

class Recorded {
public:
    Recorded() : file_(memfd_create("records", 0)), sink(file_) {}
    ~Recorded() { close(file_); }

    std::vector<Json> all() const {
        std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
        if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
            text.clear();
        std::vector<Json> records;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = text.find('\n', at);
            records.push_back(Json::parse(text.substr(at, end - at)));
            at = end + 1;
        }
        return records;
    }
    std::vector<Json> of(const std::string& kind, const std::string& metric = "") const {
        std::vector<Json> chosen;
        for (const Json& record : all())
            if (record["kind"] == kind && (metric.empty() || record["metric"] == metric))
                chosen.push_back(record);
        return chosen;
    }

private:
    int file_;

public:
    Sink sink;
};

inline void on_ranks(int ranks, const Faults& faults, const std::function<void(Session&)>& body,
                     Patience patience = patient) {
    Recorded records;
    run_null_ranks(ranks, faults, [&](Transport& transport) {
        Bench bench{records.sink, transport};
        Session session(bench, patience);
        body(session);
    });
}

}  // namespace assay::network
