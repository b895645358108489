#include "network/saturation/flows.hpp"

#include <algorithm>
#include <cstring>

namespace assay::network::saturate {
namespace {

constexpr int tag_flow = 4;
constexpr double run_out =
    1.5;  // of the time asked for: how long flows go on, so that none ends in the window
constexpr std::uint64_t going = 0x676f696e67, ended = 0x656e646564;  // the first word of a message

// A window of messages is under way on each lane; everything is posted anew when it completes. As
// many receives are posted as there are places and messages that have landed: the farewells use up
// what is left, also where one, being short, overtakes a message that was sent before it.
class Flows {
public:
    Flows(Session& session, const Round& round, int inflight)
        : session_(session), transport_(session.transport), round_(round), inflight_(inflight) {
        for (const Lane lane : round.leaving(session.rank())) out_.push_back({lane});
        for (const Lane lane : round.arriving(session.rank())) in_.push_back({lane});
        payload_.assign(out_.empty() ? 0 : words(), going);
        arrived_.resize(in_.size() * static_cast<std::size_t>(inflight) * words());
    }

    bool idle() const { return out_.empty() && in_.empty(); }
    void run();
    Outcome outcome();

private:
    struct Leaving {
        Lane lane;
        std::int64_t posted = 0, gone = 0;  // posted: without the farewells
        int farewells = 0;
    };
    struct Arriving {
        Lane lane;
        int farewells = 0;
        std::vector<Nanoseconds> times{};  // of arrival, from the common begin
    };
    struct Job {
        bool leaving;
        std::size_t lane;
        int slot;
    };

    std::size_t words() const { return (round_.size + 63) / 64 * 8; }
    std::uint64_t* place(std::size_t lane, int slot) {
        return arrived_.data() +
               (lane * static_cast<std::size_t>(inflight_) + static_cast<std::size_t>(slot)) *
                   words();
    }
    void track(Ticket ticket, Job job) {
        const auto at = static_cast<std::size_t>(ticket);
        if (at >= jobs_.size()) jobs_.resize(at + 1);
        jobs_[at] = job;
    }
    // The first message of each place is shorter than that of the next: so places do not move in
    // step, and while one waits for its start-up the others have the wire.
    std::size_t staggered(std::int64_t message) const {
        if (message >= inflight_) return round_.size;
        const auto part = round_.size / static_cast<std::size_t>(inflight_) *
                          static_cast<std::size_t>(message + 1);
        return std::max(part, sizeof going);
    }
    void post_send(std::size_t lane);
    void post_receive(std::size_t lane, int slot);
    void handle(const Job& job);
    void landed(std::size_t lane, int slot);
    bool finished() const;
    std::vector<int> awaited() const;

    Session& session_;
    Transport& transport_;
    const Round& round_;
    const int inflight_;
    std::vector<Leaving> out_;
    std::vector<Arriving> in_;
    std::vector<std::uint64_t> payload_, arrived_;
    const std::vector<std::uint64_t> farewell_ = std::vector<std::uint64_t>(1, ended);
    std::vector<Job> jobs_;
    Nanoseconds begin_ = 0, clock_ = 0;
    std::uint64_t sent_away_ = 0;
};

void Flows::post_send(std::size_t lane) {
    Leaving& one = out_[lane];
    const int to = one.lane.peer;
    if (seconds(clock_ - begin_) >= run_out * round_.seconds || Session::interrupted()) {
        ++one.farewells;
        track(transport_.send(farewell_.data(), sizeof ended, to, tag_flow), {true, lane, 0});
        return;
    }
    const std::size_t size = staggered(one.posted);
    if (session_.host(to) != session_.host(session_.rank())) sent_away_ += size;
    ++one.posted;
    track(transport_.send(payload_.data(), size, to, tag_flow), {true, lane, 0});
}

void Flows::post_receive(std::size_t lane, int slot) {
    track(transport_.receive(place(lane, slot), round_.size, in_[lane].lane.peer, tag_flow),
          {false, lane, slot});
}

void Flows::landed(std::size_t lane, int slot) {
    Arriving& one = in_[lane];
    const std::uint64_t word = *place(lane, slot);
    if (word == ended) {
        ++one.farewells;
        return;
    }
    if (word != going)
        session_.fail("a message does not begin as it was sent",
                      "the network or the MPI library corrupts messages: see 'assay net'",
                      one.lane.peer);
    one.times.push_back(clock_ - begin_);
    post_receive(lane, slot);
}

void Flows::handle(const Job& job) {
    if (!job.leaving) {
        landed(job.lane, job.slot);
        return;
    }
    Leaving& one = out_[job.lane];
    ++one.gone;
    if (one.farewells < inflight_) post_send(job.lane);
}

bool Flows::finished() const {
    return std::ranges::all_of(
               out_, [&](const Leaving& one) { return one.gone == one.posted + inflight_; }) &&
           std::ranges::all_of(in_,
                               [&](const Arriving& one) { return one.farewells == inflight_; });
}

std::vector<int> Flows::awaited() const {
    std::vector<int> peers;
    for (const Arriving& one : in_)
        if (one.farewells < inflight_) peers.push_back(one.lane.peer);
    for (const Leaving& one : out_)
        if (peers.empty()) peers.push_back(one.lane.peer);
    return peers;
}

// Nobody sends before all have posted what will arrive.
void Flows::run() {
    for (std::size_t lane = 0; lane < in_.size(); ++lane)
        for (int slot = 0; slot < inflight_; ++slot) post_receive(lane, slot);
    double nothing = 0;
    session_.max({&nothing, 1});
    begin_ = clock_ = transport_.clock();
    if (idle()) return;
    for (int slot = 0; slot < inflight_; ++slot)
        for (std::size_t lane = 0; lane < out_.size(); ++lane) post_send(lane);
    session_.expect(run_out * round_.seconds);
    session_.moved(clock_);
    std::vector<Ticket> completed;
    std::vector<Job> done;
    while (!finished()) {
        completed.clear();
        transport_.poll(completed);
        clock_ = transport_.clock();
        if (completed.empty()) {
            session_.idle(clock_, [this] { return awaited(); });
            continue;
        }
        session_.moved(clock_);
        done.clear();  // handling posts anew, and takes the tickets of those reported: first look
                       // all up
        for (const Ticket ticket : completed)
            done.push_back(jobs_[static_cast<std::size_t>(ticket)]);
        for (const Job& job : done) handle(job);
    }
}

// Messages that had arrived at a time, with the parts of those that were under way: each is taken
// to have moved evenly since the one that left its place in the window to it had arrived. So
// messages that share the wire and arrive together count as well as those that follow each other.
double arrived_by(const std::vector<Nanoseconds>& times, double at, std::size_t inflight) {
    const auto next = std::ranges::upper_bound(times, static_cast<Nanoseconds>(at));
    double arrived = static_cast<double>(next - times.begin());
    for (auto one = next; one != times.end() && one < next + static_cast<std::ptrdiff_t>(inflight);
         ++one) {
        const auto number = static_cast<std::size_t>(one - times.begin());
        const double from = number < inflight ? 0 : static_cast<double>(times[number - inflight]);
        arrived +=
            std::clamp((at - from) / std::max(static_cast<double>(*one) - from, 1.0), 0.0, 1.0);
    }
    return arrived;
}

Outcome Flows::outcome() {
    constexpr double never = 1e18;
    double agreed[] = {0, -never,
                       Session::interrupted() ? 1.0 : 0.0};  // latest start, minus the earliest end
    for (const Arriving& one : in_) {
        const std::size_t turned = std::min(one.times.size(), static_cast<std::size_t>(inflight_));
        agreed[0] =
            std::max(agreed[0], turned == 0 ? never : static_cast<double>(one.times[turned - 1]));
        agreed[1] =
            std::max(agreed[1],
                     turned == 0 ? 0 : -static_cast<double>(one.times[one.times.size() - turned]));
    }
    session_.max(agreed);
    Outcome result;
    const double from = agreed[0], to = std::min(-agreed[1], round_.seconds * 1e9);
    result.window = (to - from) * 1e-9;
    result.sent_away = sent_away_;
    result.interrupted = agreed[2] != 0;
    for (const Arriving& one : in_) {
        Carried carried{one.lane.flow, 0, {}, static_cast<std::uint64_t>(one.times.size())};
        const auto by = [&](double at) {
            return arrived_by(one.times, at, static_cast<std::size_t>(inflight_));
        };
        const double slice = (to - from) / slices, each = static_cast<double>(round_.size);
        for (std::size_t i = 0; result.window > 0 && i < slices; ++i) {
            const double at = from + slice * static_cast<double>(i);
            carried.sliced[i] = each * (by(at + slice) - by(at)) / (slice * 1e-9);
            carried.rate += carried.sliced[i] / slices;
        }
        result.carried.push_back(carried);
    }
    return result;
}

}  // namespace

Outcome run_flows(Session& session, const Round& round, int inflight) {
    Flows flows(session, round, inflight);
    flows.run();
    double nothing = 0;
    if (flows.idle()) session.rest(nothing);
    else session.max({&nothing, 1});
    return flows.outcome();
}

}  // namespace assay::network::saturate
