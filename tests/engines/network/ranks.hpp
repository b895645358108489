// Runs ranks as threads over the null transport and collects their records, for the engine's tests.
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

// Long enough for a loaded machine; a test that hangs still ends.
inline constexpr WaitLimits patient{20'000'000'000, 0};

class Recorded {
public:
    Recorded() : file_(memfd_create("records", 0)), sink(file_) {}
    ~Recorded() { close(file_); }

    std::vector<Json> all() const {
        std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
        if (pread(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
            text.clear();
        std::vector<Json> records;
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t end = text.find('\n', begin);
            records.push_back(Json::parse(text.substr(begin, end - begin)));
            begin = end + 1;
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
                     WaitLimits test_limits = patient) {
    Recorded records;
    run_null_ranks(ranks, faults, [&](Transport& transport) {
        Bench bench{records.sink, transport};
        Session session(bench, test_limits);
        body(session);
    });
}

}  // namespace assay::network
