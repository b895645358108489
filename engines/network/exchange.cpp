#include "network/exchange.hpp"

#include <algorithm>
#include <cstring>

#include "core/pattern.hpp"

namespace assay::network {
namespace {

constexpr int tag_payload = 1, tag_answer = 2;
constexpr std::size_t located_at_most = 16;  // a burst; all are counted
constexpr std::size_t line = 64;

// Receives posted ahead of a stream: enough that none of its messages is unexpected, few enough
// that testing them all stays cheap.
int receive_depth(const Burst& burst) {
    const int depth = burst.op == Op::stream ? std::max(64, 2 * burst.inflight) : burst.inflight;
    return std::min(burst.window, depth);
}

std::byte* aligned(std::byte* data) {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    return data + (line - at % line) % line;
}

}  // namespace

const char* name(Op op) { return op == Op::put ? "put" : op == Op::get ? "get" : "send"; }

// Memory is left untouched until a burst uses it.
Exchange::Exchange(Session& session, std::size_t bytes, bool exposed)
    : session_(session),
      transport_(session.transport),
      exposed_(exposed),
      own_(new std::byte[bytes + line]) {
    if (exposed) {
        window_ = session.guarded("exposes its memory to the others", -1,
                                  [&] { return transport_.expose(bytes); });
    } else {
        unexposed_.reset(new std::byte[bytes + line]);
        window_ = aligned(unexposed_.get());
    }
}

Exchange::~Exchange() {
    if (exposed_) transport_.withdraw();
}

Outcome Exchange::run(const Burst& burst, const Round& round, Histogram& latency) {
    burst_ = &burst;
    round_ = &round;
    latency_ = &latency;
    outcome_ = {};
    leaving_ = burst.op == Op::get ? window_ : aligned(own_.get());
    arriving_ = burst.op == Op::get ? aligned(own_.get()) : window_;
    prepare();
    double flag = 0;
    session_.max({&flag, 1});
    clock_ = begin_ = common_begin();
    switch (burst.op) {
        case Op::stream: stream(); break;
        case Op::request: request(); break;
        case Op::put: put(); break;
        case Op::get: get(); break;
    }
    flag = Session::interrupted();
    session_.max({&flag, 1});
    outcome_.interrupted = flag != 0;
    const bool receiver = timed_by_receiver(burst.op);
    const auto& lanes = receiver ? round.in : round.out;
    const auto& states = receiver ? in_ : out_;
    for (std::size_t i = 0; i < lanes.size(); ++i)
        outcome_.flows.push_back({lanes[i].peer, states[i].busy});
    verify();
    return std::move(outcome_);
}

// When the timed part began. Nobody posts before all have entered this barrier, so the time of our
// entering is never late; the time of our leaving can be, by as much as a whole message: an MPI
// that moves data while it is asked for the barrier comes back when they have landed. So the way
// through it is taken to last as long as it usually does, at most.
Nanoseconds Exchange::common_begin() {
    const Nanoseconds entered = transport_.clock();
    double flag = 0;
    session_.max({&flag, 1});
    const Nanoseconds took = transport_.clock() - entered;
    passages_[passed_++ % passages_.size()] = took;
    auto known = passages_;
    const auto middle =
        known.begin() + static_cast<std::ptrdiff_t>(std::min(passed_, known.size()) / 2);
    std::nth_element(known.begin(), middle,
                     known.begin() + static_cast<std::ptrdiff_t>(std::min(passed_, known.size())));
    return entered + std::min(took, *middle);
}

void Exchange::prepare() {
    const std::size_t cells =
        static_cast<std::size_t>(std::max(total(round_->out), total(round_->in)));
    out_.assign(round_->out.size(), {});
    in_.assign(round_->in.size(), {});
    if (burst_->op == Op::request) {
        answers_.resize(std::max(answers_.size(), cells));
        replies_.resize(std::max(replies_.size(), cells));
        posted_.resize(std::max(posted_.size(), cells));
    }
    if (burst_->op == Op::get) posted_.resize(std::max(posted_.size(), cells));
    for (const Lane& lane : round_->out)
        for (int slot = 0; slot < burst_->window; ++slot)
            stamp(leaving_ + place(lane.here, slot), burst_->size,
                  stamp_key(session_.rank(), lane.peer,
                            burst_->first + static_cast<std::uint64_t>(slot)));
    for (const Lane& lane : round_->in)
        for (int slot = 0; slot < burst_->window; ++slot)
            poison(arriving_ + place(lane.here, slot), burst_->size,
                   stamp_key(lane.peer, session_.rank(),
                             burst_->first + static_cast<std::uint64_t>(slot)));
    if (one_sided(burst_->op)) return;
    for (int slot = 0; slot < receive_depth(*burst_); ++slot)
        for (std::size_t lane = 0; lane < in_.size(); ++lane)
            post_receive(static_cast<int>(lane), slot);
}

// Polls until finished(); handle(job) for each operation that has completed.
template <class Done, class Handle>
void Exchange::until(Done finished, Handle handle) {
    session_.moved(clock_);
    while (!finished()) {
        completed_.clear();
        transport_.poll(completed_);
        clock_ = transport_.clock();
        if (completed_.empty()) {
            session_.idle(clock_, [this] { return awaited(); });
            continue;
        }
        session_.moved(clock_);
        // Handling posts anew, and new operations take the tickets of those reported: first look
        // all up.
        done_.clear();
        for (const Ticket ticket : completed_)
            done_.push_back(jobs_[static_cast<std::size_t>(ticket)]);
        for (const Job& job : done_) handle(job);
    }
}

void Exchange::track(Ticket ticket, Job job) {
    const auto at = static_cast<std::size_t>(ticket);
    if (at >= jobs_.size()) jobs_.resize(at + 1);
    jobs_[at] = job;
}

void Exchange::take_off(LaneState& state) {
    if (state.inflight++ == 0) state.since = clock_;
}

void Exchange::land(LaneState& state) {
    ++state.done;
    if (--state.inflight == 0) state.busy += clock_ - state.since;
}

// Messages go round the lanes in turn.
void Exchange::post_send(int message) {
    const int lanes = static_cast<int>(out_.size()), lane = message % lanes, slot = message / lanes;
    const Lane& to = round_->out[static_cast<std::size_t>(lane)];
    take_off(out_[static_cast<std::size_t>(lane)]);
    if (burst_->op == Op::request) {
        post_answer_receive(lane, slot);
        posted_[cell(lane, slot)] = clock_;
    }
    track(transport_.send(leaving_ + place(to.here, slot), burst_->size, to.peer, tag_payload),
          {Kind::sent, lane, slot});
}

void Exchange::post_receive(int lane, int slot) {
    const Lane& from = round_->in[static_cast<std::size_t>(lane)];
    ++in_[static_cast<std::size_t>(lane)].receives;
    track(transport_.receive(arriving_ + place(from.here, slot), burst_->size, from.peer,
                             tag_payload),
          {Kind::landed, lane, slot});
}

void Exchange::post_answer_receive(int lane, int number) {
    track(transport_.receive(&replies_[cell(lane, number)], sizeof(std::uint64_t),
                             round_->out[static_cast<std::size_t>(lane)].peer, tag_answer),
          {Kind::answered, lane, number});
}

void Exchange::stream() {
    const int leaving = total(round_->out), arriving = total(round_->in);
    int posted = 0, sent = 0, landed = 0;
    while (posted < std::min(leaving, burst_->inflight)) post_send(posted++);
    until([&] { return sent == leaving && landed == arriving; },
          [&](Job job) {
              const auto lane = static_cast<std::size_t>(job.lane);
              if (job.kind == Kind::sent) {
                  ++sent;
                  land(out_[lane]);
                  if (posted < leaving) post_send(posted++);
                  return;
              }
              LaneState& state = in_[lane];
              ++state.done;
              ++landed;
              state.busy = clock_ - begin_;
              if (state.receives < burst_->window) post_receive(job.lane, state.receives);
          });
    for (const LaneState& state : in_) outcome_.elapsed = std::max(outcome_.elapsed, state.busy);
    outcome_.operations = static_cast<std::uint64_t>(arriving);
}

// A client asks, a server answers; in a round of pairs each rank does both.
void Exchange::request() {
    const int asking = total(round_->out), answering = total(round_->in);
    int posted = 0, sent = 0, answered = 0, answers_gone = 0;
    const auto answer = [&](Job job) {
        LaneState& state = in_[static_cast<std::size_t>(job.lane)];
        ++state.done;
        if (state.receives < burst_->window) post_receive(job.lane, state.receives);
        std::uint64_t& number = answers_[cell(job.lane, job.slot)];
        number = burst_->first + static_cast<std::uint64_t>(job.slot);
        track(transport_.send(&number, sizeof number,
                              round_->in[static_cast<std::size_t>(job.lane)].peer, tag_answer),
              {Kind::answer, job.lane, job.slot});
    };
    // Answers may come in another order than the messages went: the number tells.
    const auto conclude = [&](Job job) {
        const std::uint64_t slot = replies_[cell(job.lane, job.slot)] - burst_->first;
        if (slot >= static_cast<std::uint64_t>(burst_->window))
            session_.fail("an acknowledgement names a message that was not sent",
                          "the network or the MPI library corrupts messages",
                          round_->out[static_cast<std::size_t>(job.lane)].peer);
        latency_->record(clock_ - posted_[cell(job.lane, static_cast<int>(slot))]);
        land(out_[static_cast<std::size_t>(job.lane)]);
        ++answered;
        outcome_.elapsed = clock_ - begin_;
        if (posted < asking) post_send(posted++);
    };
    while (posted < std::min(asking, burst_->inflight)) post_send(posted++);
    until([&] { return sent == asking && answered == asking && answers_gone == answering; },
          [&](Job job) {
              switch (job.kind) {
                  case Kind::landed: answer(job); break;
                  case Kind::answered: conclude(job); break;
                  case Kind::sent: ++sent; break;
                  default: ++answers_gone;
              }
          });
    outcome_.operations = static_cast<std::uint64_t>(asking);
}

void Exchange::put() {
    const int leaving = total(round_->out), lanes = static_cast<int>(out_.size());
    for (int begin = 0; begin < leaving;) {
        const int end = std::min(leaving, begin + burst_->inflight);
        const Nanoseconds posted = clock_;
        for (int message = begin; message < end; ++message) {
            const Lane& to = round_->out[static_cast<std::size_t>(message % lanes)];
            take_off(out_[static_cast<std::size_t>(message % lanes)]);
            const std::size_t there = place(to.there, message / lanes);
            transport_.put(leaving_ + place(to.here, message / lanes), burst_->size, to.peer,
                           there);
        }
        for (int i = begin; i < std::min(end, begin + lanes); ++i) {
            LaneState& state = out_[static_cast<std::size_t>(i % lanes)];
            const int peer = round_->out[static_cast<std::size_t>(i % lanes)].peer;
            session_.guarded(
                "waits for puts to complete", peer, [&] { transport_.flush(peer); }, clock_);
            clock_ = transport_.clock();
            while (state.inflight > 0) {
                latency_->record(clock_ - posted);
                land(state);
            }
        }
        begin = end;
    }
    outcome_.elapsed = leaving ? clock_ - begin_ : 0;
    outcome_.operations = static_cast<std::uint64_t>(leaving);
}

void Exchange::get() {
    const int arriving = total(round_->in), lanes = static_cast<int>(in_.size());
    int posted = 0, got = 0;
    const auto post = [&] {
        const int lane = posted % lanes, slot = posted / lanes;
        const Lane& from = round_->in[static_cast<std::size_t>(lane)];
        take_off(in_[static_cast<std::size_t>(lane)]);
        posted_[cell(lane, slot)] = clock_;
        ++posted;
        track(transport_.get(arriving_ + place(from.here, slot), burst_->size, from.peer,
                             place(from.there, slot)),
              {Kind::got, lane, slot});
    };
    while (posted < std::min(arriving, burst_->inflight)) post();
    until([&] { return got == arriving; },
          [&](Job job) {
              latency_->record(clock_ - posted_[cell(job.lane, job.slot)]);
              land(in_[static_cast<std::size_t>(job.lane)]);
              ++got;
              outcome_.elapsed = clock_ - begin_;
              if (posted < arriving) post();
          });
    outcome_.operations = static_cast<std::uint64_t>(arriving);
}

void Exchange::verify() {
    for (const Lane& lane : round_->in) {
        for (int slot = 0; slot < burst_->window; ++slot) {
            const std::uint64_t message = burst_->first + static_cast<std::uint64_t>(slot);
            const std::uint64_t key = stamp_key(lane.peer, session_.rank(), message);
            const std::byte* data = arriving_ + place(lane.here, slot);
            const auto wrong =
                burst_->verify ? first_wrong_byte(data, burst_->size, key) : std::nullopt;
            if (!wrong) {
                outcome_.bytes += burst_->size;
                continue;
            }
            ++outcome_.corrupted;
            outcome_.wrong_from.push_back(lane.peer);
            if (outcome_.wrong.size() >= located_at_most) continue;
            const std::size_t word = *wrong / 8 * 8;
            std::uint64_t observed = stamped_word(key, word);
            std::memcpy(&observed, data + word, std::min<std::size_t>(8, burst_->size - word));
            outcome_.wrong.push_back(
                {lane.peer, message, *wrong, stamped_word(key, word), observed});
        }
    }
}

std::vector<int> Exchange::awaited() const {
    std::vector<int> peers;
    const auto collect = [&](const std::vector<Lane>& lanes, const std::vector<LaneState>& states) {
        for (std::size_t i = 0; i < states.size(); ++i) {
            const int peer = lanes[i].peer;
            if (states[i].done < burst_->window && std::ranges::find(peers, peer) == peers.end())
                peers.push_back(peer);
        }
    };
    collect(round_->out, out_);
    collect(round_->in, in_);
    return peers;
}

}  // namespace assay::network
