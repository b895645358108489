// Helpers of the network tests: run ranks as threads over the null transport, and collect their
// records.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/record.hpp"
#include "network/session.hpp"
#include "transport/null.hpp"

namespace assay::network {

// Long limits for a loaded machine; a test that hangs still ends.
inline constexpr WaitLimits long_limits{20'000'000'000, 0};

// The records that ranks have written.
class Recording {
public:
    Recording() : file_(memfd_create("records", 0)), sink(file_) {}
    ~Recording() { close(file_); }

    std::vector<Json> all_records() const {
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
    std::vector<Json> records_of(const std::string& kind, const std::string& metric = "") const {
        std::vector<Json> selected;
        for (const Json& record : all_records())
            if (record["kind"] == kind && (metric.empty() || record["metric"] == metric))
                selected.push_back(record);
        return selected;
    }

private:
    int file_;

public:
    Sink sink;
};

// Whether a test sends SIGINT or SIGTERM to its own process.
enum class Signals : bool { unexpected, planted };

// The time in which sessions handle SIGINT and SIGTERM. A session replaces the handlers of the
// process and does not put them back, and all tests share one process. At the end the handlers are
// those of before, and a planted signal is forgotten. An unexpected signal ends the tests: it is
// from the user or from a time limit.
class SignalScope {
public:
    explicit SignalScope(Signals signals) : signals_(signals) {
        sigaction(SIGINT, nullptr, &on_interrupt_);
        sigaction(SIGTERM, nullptr, &on_terminate_);
    }
    ~SignalScope() {
        sigaction(SIGINT, &on_interrupt_, nullptr);
        sigaction(SIGTERM, &on_terminate_, nullptr);
        if (Session::forget_signal() && signals_ == Signals::unexpected) std::raise(SIGTERM);
    }
    SignalScope(const SignalScope&) = delete;

private:
    const Signals signals_;
    struct sigaction on_interrupt_{}, on_terminate_{};
};

// Runs `body` on every rank, each in a thread. `body` may create sessions.
inline void run_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body,
                      Signals signals = Signals::unexpected) {
    const SignalScope scope(signals);
    run_null_ranks(ranks, faults, body);
}

// The same, with a session for each rank.
inline void on_ranks(int ranks, const Faults& faults, const std::function<void(Session&)>& body,
                     WaitLimits test_limits = long_limits, Signals signals = Signals::unexpected) {
    Recording recording;
    run_ranks(
        ranks, faults,
        [&](Transport& transport) {
            Bench bench{recording.sink, transport};
            Session session(bench, test_limits);
            body(session);
        },
        signals);
}

}  // namespace assay::network
