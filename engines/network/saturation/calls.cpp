// Times the MPI calls of a round (see calls.hpp).
#include "network/saturation/calls.hpp"

#include <algorithm>

namespace assay::network::saturate {
namespace {

constexpr int tag_data = 6, tag_ready = 7;
// For one pair, size and kind of send. Fewer than `count` samples are taken if they would take
// longer, but at least `min_samples`.
constexpr double max_call_seconds = 0.05;
constexpr std::int64_t min_samples = 3;

// One pair: `send` and `isend` run on its first rank while `receive` runs on its second. Both ranks
// take the number of messages from the round.
class CallPair {
public:
    CallPair(Session& session, int peer, std::size_t size, double pause, std::int64_t count)
        : session_(session),
          transport_(session.transport),
          peer_(peer),
          pause_(static_cast<Nanoseconds>(pause * 1e9)),
          samples_(std::clamp(static_cast<std::int64_t>(max_call_seconds / (1.5 * pause)),
                              std::min(count, min_samples), count)),
          buffer_(size) {}

    std::vector<double> send() {
        return sample(
            [&] { transport_.call_send(buffer_.data(), buffer_.size(), peer_, tag_data); }, [] {});
    }
    std::vector<double> isend() {
        return sample(
            [&] { transport_.call_isend(buffer_.data(), buffer_.size(), peer_, tag_data); },
            [&] { complete(); });
    }
    // Runs once for `send` and once for `isend`.
    std::vector<double> receive() {
        std::vector<double> samples;
        for (std::int64_t i = 0; i < samples_; ++i) {
            blocking([&] { transport_.call_send(&ready_, 1, peer_, tag_ready); });
            transport_.pause(pause_);
            samples.push_back(blocking(
                [&] { transport_.call_receive(buffer_.data(), buffer_.size(), peer_, tag_data); }));
        }
        return samples;
    }
    std::uint64_t bytes_per_kind() const {
        return buffer_.size() * static_cast<std::uint64_t>(samples_);
    }

private:
    template <class Call>
    double blocking(Call call) {
        return session_.guarded("measures the calls of MPI", peer_, [&] {
            const Nanoseconds begin = transport_.clock();
            call();
            return seconds(transport_.clock() - begin);
        });
    }
    template <class Call, class After>
    std::vector<double> sample(Call call, After after) {
        std::vector<double> samples;
        for (std::int64_t i = 0; i < samples_; ++i) {
            blocking([&] { transport_.call_receive(&ready_, 1, peer_, tag_ready); });
            samples.push_back(blocking(call));
            after();
        }
        return samples;
    }
    void complete() {
        std::vector<Ticket> completed;
        session_.note_progress(transport_.clock());
        while (completed.empty()) {
            transport_.poll(completed);
            if (completed.empty())
                session_.note_idle(transport_.clock(), [this] { return std::vector{peer_}; });
        }
    }

    Session& session_;
    Transport& transport_;
    const int peer_;
    const Nanoseconds pause_;
    const std::int64_t samples_;
    std::vector<std::byte> buffer_;
    std::byte ready_{};
};

}  // namespace

bool run_calls(Session& session, const Round& round, std::vector<CallTimes>& times,
               std::uint64_t& bytes_sent_off_host) {
    double interrupted = 0;
    if (!session.transport.has_calls()) {
        interrupted = Session::interrupted();
        session.max({&interrupted, 1});
        return interrupted == 0;
    }
    Json own_times = Json::array();
    const int rank = session.rank();
    for (std::size_t i = 0; i < round.pairs.size() && interrupted == 0; ++i) {
        const auto [first, second] = round.pairs[i];
        for (std::size_t k = 0; k < round.sizes.size(); ++k) {
            if (rank != first && rank != second) break;
            CallPair pair(session, rank == first ? second : first, round.sizes[k], round.pauses[k],
                          round.count);
            if (rank == second) {
                own_times.push_back({i, k, "receive", pair.receive()});
                pair.receive();  // of isend(); these samples are not used
                continue;
            }
            own_times.push_back({i, k, "send", pair.send()});
            own_times.push_back({i, k, "isend", pair.isend()});
            if (session.host(first) != session.host(second))
                bytes_sent_off_host += 2 * pair.bytes_per_kind();
        }
        // The other ranks sleep during a pair.
        interrupted = Session::interrupted();
        if (rank == first || rank == second) session.max({&interrupted, 1});
        else session.max_sleeping(interrupted);
    }
    const std::size_t begin = times.size();
    for (std::size_t i = 0; rank == 0 && i < round.pairs.size(); ++i)
        for (std::size_t k = 0; k < round.sizes.size(); ++k)
            times.push_back({i, round.sizes[k], round.pauses[k], {}, {}, {}});
    for (const std::string& part : session.gather(own_times.dump()))
        for (const Json& entry : Json::parse(part)) {
            CallTimes& pair = times[begin + entry[0].get<std::size_t>() * round.sizes.size() +
                                    entry[1].get<std::size_t>()];
            const std::string call = entry[2];
            (call == "send"    ? pair.send
             : call == "isend" ? pair.isend
                               : pair.receive) = entry[3].get<std::vector<double>>();
        }
    return interrupted == 0;
}

}  // namespace assay::network::saturate
