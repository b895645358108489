// Runs the ping-pongs of a round (see ping_pong.hpp).
#include "network/saturation/ping_pong.hpp"

#include <algorithm>
#include <utility>

namespace assay::network::saturate {
namespace {

constexpr int tag_ping_pong = 5;
// Time limits for one pair and size; samples that do not fit are left out. The first size gets more
// time, so that its messages empty the token buckets of traffic shapers.
constexpr double max_first_seconds = 0.5, max_later_seconds = 0.2;

// One pair: the first rank calls measure() while the second calls answer().
class Pair {
public:
    Pair(Session& session, int peer, std::size_t max_size)
        : session_(session),
          transport_(session.transport),
          peer_(peer),
          send_buffer_(max_size),
          receive_buffer_(max_size) {}

    // Half round trips, timed by the side that begins. The very first round trip sets up the
    // connection and is not a sample.
    std::vector<double> measure(std::size_t size, std::int64_t count, bool first) {
        std::vector<double> samples;
        const Nanoseconds started = transport_.clock();
        const double limit = first ? max_first_seconds : max_later_seconds;
        for (std::int64_t i = first ? -1 : 0; i < count; ++i) {
            const bool last = i + 1 == count || Session::interrupted() ||
                              seconds(transport_.clock() - started) > limit;
            send_buffer_[0] = static_cast<std::byte>(last ? 1 : 0);
            const Nanoseconds sent = transport_.clock();
            transport_.call_isend(send_buffer_.data(), size, peer_, tag_ping_pong);
            transport_.receive(receive_buffer_.data(), size, peer_, tag_ping_pong);
            wait_for(2);
            if (i >= 0 || last) samples.push_back(seconds(transport_.clock() - sent) / 2);
            if (last) break;
        }
        return samples;
    }

    void answer(std::size_t size) {
        for (bool last = false; !last;) {
            transport_.receive(receive_buffer_.data(), size, peer_, tag_ping_pong);
            wait_for(1);
            last = receive_buffer_[0] != std::byte{0};
            transport_.call_isend(send_buffer_.data(), size, peer_, tag_ping_pong);
            wait_for(1);
        }
    }

private:
    // Waits for the completion of all `inflight` operations.
    void wait_for(int inflight) {
        std::vector<Ticket> completed;
        session_.note_progress(transport_.clock());
        while (inflight > 0) {
            completed.clear();
            transport_.poll(completed);
            inflight -= static_cast<int>(completed.size());
            if (completed.empty())
                session_.note_idle(transport_.clock(), [this] { return std::vector{peer_}; });
        }
    }

    Session& session_;
    Transport& transport_;
    const int peer_;
    std::vector<std::byte> send_buffer_, receive_buffer_;
};

}  // namespace

bool run_ping_pong(Session& session, const Round& round, std::vector<PingPongTimes>& times,
                   std::uint64_t& bytes_sent_off_host) {
    const std::size_t max_size = *std::ranges::max_element(round.sizes);
    Json own_times = Json::array();
    double interrupted = 0;
    for (std::size_t i = 0; i < round.pairs.size() && interrupted == 0; ++i) {
        const auto [first, second] = round.pairs[i];
        const int rank = session.rank();
        // The other ranks sleep during a pair. In the simulator waiting ranks do not disturb, but
        // each barrier takes time to simulate: there pairs with the same first rank follow each
        // other without a barrier.
        const bool last = i + 1 == round.pairs.size() || round.pairs[i + 1].first != first;
        const bool barrier = !session.transport.simulated() || last;
        if (rank == first || rank == second) {
            Pair pair(session, rank == first ? second : first, max_size);
            bool is_first = true;
            for (const std::size_t size : round.sizes) {
                if (rank == second) {
                    pair.answer(size);
                    continue;
                }
                const std::vector<double> samples =
                    pair.measure(size, round.count, std::exchange(is_first, false));
                if (session.host(first) != session.host(second))
                    bytes_sent_off_host += size * samples.size();
                own_times.push_back({i, size, samples});
            }
        }
        if (!barrier) continue;
        interrupted = Session::interrupted();
        if (rank == first || rank == second) session.max({&interrupted, 1});
        else session.max_sleeping(interrupted);
    }
    for (const std::string& part : session.gather(own_times.dump()))
        for (const Json& entry : Json::parse(part)) times.push_back({entry[0], entry[1], entry[2]});
    return interrupted == 0;
}

}  // namespace assay::network::saturate
