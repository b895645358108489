#include "network/saturation/echo.hpp"

#include <algorithm>

namespace assay::network::saturate {
namespace {

constexpr int tag_echo = 5;
constexpr double pair_seconds = 0.5;  // for one pair and size; what it has by then must do

class PingPong {
public:
    PingPong(Session& session, int peer, std::size_t most)
        : session_(session),
          transport_(session.transport),
          peer_(peer),
          there_(most),
          back_(most) {}

    // Half round trips, seen from the side that begins. The first has other things to do as well.
    std::vector<double> begin(std::size_t size, std::int64_t count) {
        std::vector<double> samples;
        const Nanoseconds started = transport_.clock();
        for (std::int64_t i = -1; i < count; ++i) {
            const bool last = i + 1 == count || Session::interrupted() ||
                              seconds(transport_.clock() - started) > pair_seconds;
            there_[0] = static_cast<std::byte>(last ? 1 : 0);
            const Nanoseconds at = transport_.clock();
            exchange(transport_.receive(back_.data(), size, peer_, tag_echo),
                     transport_.send(there_.data(), size, peer_, tag_echo));
            if (i >= 0 || last) samples.push_back(seconds(transport_.clock() - at) / 2);
            if (last) break;
        }
        return samples;
    }

    void answer(std::size_t size) {
        for (bool last = false; !last;) {
            complete(transport_.receive(back_.data(), size, peer_, tag_echo));
            last = back_[0] != std::byte{0};
            complete(transport_.send(there_.data(), size, peer_, tag_echo));
        }
    }

private:
    void complete(Ticket one) { exchange(one, one); }
    void exchange(Ticket one, Ticket other) {
        int left = one == other ? 1 : 2;
        std::vector<Ticket> completed;
        session_.moved(transport_.clock());
        while (left > 0) {
            completed.clear();
            transport_.poll(completed);
            left -= static_cast<int>(completed.size());
            if (completed.empty())
                session_.idle(transport_.clock(), [this] { return std::vector{peer_}; });
        }
    }

    Session& session_;
    Transport& transport_;
    const int peer_;
    std::vector<std::byte> there_, back_;
};

}  // namespace

bool run_echoes(Session& session, const Round& round, std::vector<Echo>& echoes,
                std::uint64_t& sent_away) {
    const std::size_t most = *std::ranges::max_element(round.sizes);
    Json mine = Json::array();
    double interrupted = 0;
    for (std::size_t i = 0; i < round.pairs.size() && interrupted == 0; ++i) {
        const auto [first, second] = round.pairs[i];
        const int rank = session.rank();
        // Others rest until it is their turn. In the simulator, where waiting disturbs nobody and
        // every barrier is simulated, pairs that have their first rank in common follow each other
        // by that alone.
        const bool last = i + 1 == round.pairs.size() || round.pairs[i + 1].first != first;
        const bool apart = !session.transport.simulated() || last;
        if (rank == first || rank == second) {
            PingPong pair(session, rank == first ? second : first, most);
            for (const std::size_t size : round.sizes) {
                if (rank == second) {
                    pair.answer(size);
                    continue;
                }
                const std::vector<double> samples = pair.begin(size, round.count);
                if (session.host(first) != session.host(second)) sent_away += size * samples.size();
                mine.push_back({i, size, samples});
            }
        }
        if (!apart) continue;
        interrupted = Session::interrupted();
        if (rank == first || rank == second) session.max({&interrupted, 1});
        else session.rest(interrupted);
    }
    for (const std::string& part : session.gather(mine.dump()))
        for (const Json& one : Json::parse(part)) echoes.push_back({one[0], one[1], one[2]});
    return interrupted == 0;
}

}  // namespace assay::network::saturate
