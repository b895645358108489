// The event manager's communication with the ranks (see coordinator.hpp).
#include "events/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace assay::events {
namespace {

constexpr Nanoseconds progress_interval = 1'000'000'000;
constexpr Nanoseconds plan_poll_interval = 10'000'000;
constexpr std::size_t max_named = 8;

EventManager::Options manager_options(const RankContext& context) {
    const Settings& s = context.settings;
    return {.ranks = context.transport.size(),
            .credits = s.credits,
            .slots = s.slots(),
            .in_rounds = s.in_rounds(),
            .events_per_group = s.events_per_message,
            .events = s.events,
            .drop = s.policy == Policy::drop};
}

}  // namespace

Coordinator::Coordinator(RankContext& context, Sink& sink)
    : context_(context),
      settings_(context.settings),
      results_(context.settings, sink),
      sink_(sink),
      manager_(context.settings.units, manager_options(context)),
      slices_(context.transport.size()),
      buffers_(static_cast<std::size_t>(context.transport.size())),
      identities_(buffers_.size()),
      needed_memory_(buffers_.size()),
      available_memory_(buffers_.size()) {
    for (int rank = 1; rank < context.transport.size(); ++rank) receive(rank);
}

void Coordinator::receive(int rank) {
    Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
    if (buffer.posted) return;
    buffer.bytes.resize(max_message_to_manager);
    buffer.posted = true;
    context_.operations.receive(buffer.bytes.data(), buffer.bytes.size(), tag::to_manager,
                                {OperationKind::receive_from_rank, rank, 0});
}

void Coordinator::send(int rank, std::shared_ptr<const Bytes> message) {
    if (rank == 0) own_messages.push_back(std::move(message));
    else if (context_.connected[static_cast<std::size_t>(rank)])
        context_.operations.send_control(rank, tag::from_manager, std::move(message));
}

std::vector<int> Coordinator::member_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < context_.transport.size(); ++rank)
        if (manager_.membership().has(rank)) ranks.push_back(rank);
    return ranks;
}

void Coordinator::broadcast(Bytes message) {
    const auto shared = std::make_shared<const Bytes>(std::move(message));
    for (const int rank : member_ranks()) send(rank, shared);
}

void Coordinator::on_own_hello(const std::string& hello) { on_hello(0, hello, 0); }

void Coordinator::on_message(int rank, std::span<const std::byte> message, Nanoseconds time) {
    const MessageKind kind = read_kind(message);
    if (kind == MessageKind::hello) {
        on_hello(rank, read_hello(message), time);
    } else if (manager_.membership().has(rank)) {
        switch (kind) {
            case MessageKind::done: on_done(read_done(message), time); break;
            case MessageKind::parked: on_parked(read_parked(message), time); break;
            case MessageKind::peer_joined: seen_by_[read_rank(message)].insert(rank); break;
            case MessageKind::damage: on_damage(rank, read_damage(message)); break;
            case MessageKind::peer_lost: {
                const PeerLost lost = read_peer_lost(message);
                const Membership& members = manager_.membership();
                if (lost.rank <= 0 || lost.rank >= context_.transport.size() ||
                    members.since[static_cast<std::size_t>(lost.rank)] != lost.since ||
                    lost.since == 0)
                    break;
                send(lost.rank, std::make_shared<const Bytes>(encode_empty(MessageKind::evict)));
                remove(lost.rank, time);
                break;
            }
            case MessageKind::report: on_report(rank, read_report(message)); break;
            default:
                throw Error(fmt::format("rank {} sent message {} to the event manager", rank,
                                        static_cast<int>(kind)),
                            "run the same version of Assay on every host");
        }
    }
}

void Coordinator::on_received(int rank, Nanoseconds time) {
    Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
    buffer.posted = false;
    on_message(rank, buffer.bytes, time);
    if (!last_reports_.contains(rank)) receive(rank);
}

void Coordinator::on_hello(int rank, const std::string& hello, Nanoseconds time) {
    const auto r = static_cast<std::size_t>(rank);
    const Json parsed = Json::parse(hello, nullptr, false);
    if (parsed.is_object() && parsed.contains("error"))
        throw Error(fmt::format("rank {}: {}", rank, printable(parsed["error"])),
                    printable(parsed["fix"]));
    try {
        identities_[r] = read_identity(parsed.at("identity").dump());
        needed_memory_[r] = parsed.at("needs");
        available_memory_[r] = parsed.at("available");
    } catch (const nlohmann::json::exception&) {
        throw Error(fmt::format("rank {} sent a hello message that cannot be read", rank),
                    "run the same version of Assay on every host");
    }
    if (phase_ == Phase::running) returned_.insert(rank);
    else if (phase_ != Phase::joining) send_stop(rank);  // it came back too late
    if (phase_ != Phase::joining) return;
    if (std::ranges::all_of(identities_, [](const auto& i) { return i.has_value(); })) begin(time);
}

// Throws Error if the buffers of a host's ranks, which share its memory, do not fit.
void Coordinator::check_memory() const {
    std::map<std::string, std::pair<double, double>> hosts;  // needed, available
    for (std::size_t r = 0; r < identities_.size(); ++r) {
        auto& [needed, available] = hosts[identities_[r]->host];
        needed += needed_memory_[r];
        available = std::max(available, available_memory_[r]);
    }
    if (!context_.transport.keeps_contents()) return;
    for (const auto& [host, memory] : hosts)
        if (memory.first > 0.8 * memory.second)
            throw Error(fmt::format("{}: the buffers need {:.1f} GiB of {:.1f} GiB available", host,
                                    memory.first / (1 << 30), memory.second / (1 << 30)),
                        "lower --fragment or --credits, or start fewer ranks on a host");
}

void Coordinator::begin(Nanoseconds time) {
    std::vector<Identity> identities;
    identities.reserve(identities_.size());
    for (const auto& identity : identities_) identities.push_back(*identity);
    make_unique(identities);
    for (std::size_t r = 0; r < identities.size(); ++r) identities_[r] = identities[r];
    check_memory();
    std::vector<std::string> hosts;
    hosts.reserve(identities.size());
    for (const Identity& identity : identities) hosts.push_back(identity.host);
    results_.labels = rank_labels(hosts);
    report_ranks(sink_, identities, results_.labels);
    std::vector<int> all(identities.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    manager_.admit(all);
    for (const int rank : all)
        send(rank,
             std::make_shared<const Bytes>(encode_welcome(
                 {results_.labels[static_cast<std::size_t>(rank)], 0, 0, manager_.membership()})));
    if (has_waited_) sink_.waiting({});
    phase_ = Phase::running;
    start_ = last_progress_ = last_built_ = last_shown_ = time;
}

void Coordinator::on_change(const PeerChange& change, Nanoseconds time) {
    if (change.state == PeerChange::State::joined) {
        receive(change.rank);  // does nothing if it is posted already
        return;
    }
    seen_by_.erase(change.rank);
    returned_.erase(change.rank);
    if (phase_ == Phase::joining)
        throw Error(fmt::format("rank {} was lost before the start", change.rank),
                    "see its last messages; check that its host is up and reachable");
    remove(change.rank, time);
}

void Coordinator::remove(int rank, Nanoseconds time) {
    if (phase_ == Phase::stopping && last_reports_.contains(rank)) return;  // it has ended
    if (!manager_.remove(rank)) return;
    const std::vector<int> builders = manager_.membership().intersect(settings_.units.builders);
    sink_.progress(0, fmt::format("{} was lost; {} builder units go on", results_.label(rank),
                                  builders.size()));
    for (Loss& loss : losses_) loss.pending_builders.erase(rank);
    std::erase_if(returns_, [rank](const Return& back) { return back.rank == rank; });
    lost_at_[rank] = time;
    if (phase_ == Phase::running && !manager_.all_assigned())
        losses_.push_back({rank, time, last_built_, {builders.begin(), builders.end()}});
    results_.add_lost(rank);
    broadcast(encode_members(manager_.membership()));
    request_plan(time);
    if (builders.empty() || manager_.membership().intersect(settings_.units.readouts).empty())
        throw Error(fmt::format("{} was lost: no {} units are left", results_.label(rank),
                                builders.empty() ? "builder" : "readout"),
                    "start more ranks");
}

// One rank at a time: a rank that came back is a member before it can see the next one.
void Coordinator::admit_returned(Nanoseconds time) {
    const std::vector<int> members = member_ranks();
    const auto is_ready = [&](int rank) {
        const std::set<int>& seen = seen_by_[rank];
        return std::ranges::all_of(members, [&](int r) { return r == 0 || seen.contains(r); });
    };
    const auto ready = std::ranges::find_if(returned_, is_ready);
    if (ready == returned_.end()) return;
    const int rank = *ready;
    returned_.erase(ready);
    seen_by_.erase(rank);
    last_reports_.erase(rank);
    manager_.admit({rank});
    results_.add_returned(rank);
    returns_.push_back({rank, lost_at_[rank], time});
    sink_.progress(0, fmt::format("{} came back", results_.label(rank)));
    const auto slice =
        settings_.slice > 0 ? static_cast<std::uint64_t>((time - start_) / settings_.slice) : 0;
    const Membership& membership = manager_.membership();
    send(rank, std::make_shared<const Bytes>(encode_welcome(
                   {results_.label(rank), manager_.next_group(), slice, membership})));
    if (plan_) send(rank, std::make_shared<const Bytes>(encode_plan(plan_->of(rank))));
    const auto message = std::make_shared<const Bytes>(encode_members(membership));
    for (const int member : members) send(member, message);
    request_plan(time);
}

void Coordinator::request_plan(Nanoseconds time) {
    if (settings_.order != Schedule::Order::file || phase_ != Phase::running) return;
    sink_.members(member_ranks());
    plan_wanted_since_ = time;
}

void Coordinator::take_plan(Nanoseconds time) {
    if (plan_wanted_since_ == 0) return;
    if (const auto line = context_.transport.launcher_line()) on_plan(*line, time);
    if (plan_wanted_since_ != 0) context_.schedule_wake(time + plan_poll_interval);
}

// A plan for other members than those of now is left out: one for these follows.
void Coordinator::on_plan(const std::string& line, Nanoseconds time) {
    const Json json = Json::parse(line, nullptr, false);
    try {
        if (json.at("kind") != "plan" || json.at("ranks") != member_ranks()) return;
        Plan plan =
            Plan::from_steps(json.at("steps"), "the launcher's plan", context_.transport.size());
        if (plan.size() > max_plan_steps(context_.transport.size()))
            throw Error(fmt::format("{} steps", plan.size()), "");
        plan_ = std::move(plan);
    } catch (const std::exception& error) {
        sink_.progress(0, fmt::format("the launcher's new plan is not followed: {}", error.what()));
        plan_wanted_since_ = 0;
        return;
    }
    for (const int rank : member_ranks())
        send(rank, std::make_shared<const Bytes>(encode_plan(plan_->of(rank))));
    results_.write_replan(seconds(time - std::exchange(plan_wanted_since_, 0)), plan_->size());
}

void Coordinator::on_done(const Done& done, Nanoseconds time) {
    const Nanoseconds begin = now();
    const Nanoseconds assigned_at = manager_.assigned_at(done.assignment);
    const std::string problem = manager_.close(done.assignment, done.outcome, time);
    if (!problem.empty())
        throw Error("the ledger does not fit: " + problem, "this is a defect of Assay");
    closing_time_ += now() - begin;
    last_progress_ = time;
    if (done.outcome.events_built == 0) return;  // a lost rank's events close too, incomplete
    last_built_ = time;
    const int builder = done.assignment.target.builder;
    record_resume(builder, assigned_at, time);
    record_return(builder, assigned_at, time);
}

void Coordinator::on_parked(const Assignment& parked, Nanoseconds time) {
    if (manager_.park(parked)) last_progress_ = time;
}

// Records the end of a loss: each builder unit has built an event that was assigned after it.
void Coordinator::record_resume(int builder, Nanoseconds assigned_at, Nanoseconds time) {
    std::erase_if(losses_, [&](Loss& loss) {
        if (assigned_at >= loss.noticed) loss.pending_builders.erase(builder);
        if (!loss.pending_builders.empty()) return false;
        results_.write_resume(loss.rank, seconds(time - loss.last_built));
        return true;
    });
}

// Records the end of a return: the rank has built an event or, if it is no builder unit, taken part
// in one, which was assigned after it had become a member again.
void Coordinator::record_return(int builder, Nanoseconds assigned_at, Nanoseconds time) {
    std::erase_if(returns_, [&](const Return& back) {
        const bool builds = std::ranges::binary_search(settings_.units.builders, back.rank);
        if (assigned_at < back.admitted || (builds && builder != back.rank)) return false;
        results_.write_return(back.rank, seconds(time - back.lost));
        return true;
    });
}

void Coordinator::on_damage(int rank, const Damage& damage) {
    if (damage.source < 0 || damage.source >= context_.transport.size()) return;
    results_.write_damage(rank, damage);
}

void Coordinator::on_report(int rank, const Report& report) {
    slices_.add(rank, report);
    if (report.last && !report.more) last_reports_.insert(rank);
    slices_.flush(member_ranks(), false,
                  [this](const Slice& slice) { results_.write_slice(slice); });
}

void Coordinator::assign_events(Nanoseconds time) {
    for (;;) {
        const Nanoseconds begin = now();
        const std::optional<Batch> batch = manager_.plan(time);
        if (!batch) break;
        const Nanoseconds decision_time = now() - begin + std::exchange(closing_time_, 0);
        const auto events = static_cast<Nanoseconds>(batch->size() * settings_.events_per_message);
        results_.add_decision(decision_time, events);
        broadcast(encode_batch(*batch));
    }
    if (const auto next = manager_.next_plan()) context_.schedule_wake(std::max(*next, time + 1));
}

void Coordinator::show_progress(Nanoseconds time) {
    if (time - last_shown_ < progress_interval) return;
    const Outcome& total = manager_.ledger().total();
    double share = 0;
    const double elapsed = seconds(time - start_);
    if (settings_.events > 0)
        share = static_cast<double>(total.events()) / static_cast<double>(settings_.events);
    if (settings_.duration > 0) share = std::max(share, elapsed / seconds(settings_.duration));
    share = std::min(share, 1.0);
    double left = share > 0 ? elapsed / share - elapsed : -1;
    if (draining_) {
        const auto open = manager_.ledger().open_groups();
        const double closed = static_cast<double>(draining_->open) - static_cast<double>(open);
        left =
            closed > 0 ? seconds(time - draining_->since) / closed * static_cast<double>(open) : -1;
    }
    sink_.progress(share, describe_progress(), left);
    last_shown_ = time;
}

// "1204 events built, 9.70 GB/s, least n3 2.10 GB/s, 12 open, 1 lost"
std::string Coordinator::describe_progress() const {
    std::string text = fmt::format("{} events built", manager_.ledger().total().events_built);
    if (results_.last_rate() > 0)
        text += fmt::format(", {:.2f} GB/s, least {} {:.2f} GB/s", results_.last_rate() * 1e-9,
                            results_.label(results_.last_slowest().rank),
                            results_.last_slowest().rate * 1e-9);
    text += fmt::format(", {} open", manager_.ledger().open_groups());
    if (draining_) text += ", no new ones";
    if (results_.lost() > 0) text += fmt::format(", {} lost", results_.lost());
    if (results_.returned() > 0) text += fmt::format(", {} came back", results_.returned());
    return text;
}

// Reports the ranks that the start waits for, once a second.
void Coordinator::show_awaited(Nanoseconds time) {
    if (!waits_since_) waits_since_ = last_shown_ = time;
    if (time - last_shown_ >= progress_interval) {
        sink_.waiting(awaited_ranks());
        last_shown_ = time;
        has_waited_ = true;
    }
    context_.schedule_wake(last_shown_ + progress_interval);
}

void Coordinator::advance(Nanoseconds time) {
    if (phase_ == Phase::joining) {
        show_awaited(time);
    } else if (phase_ == Phase::running) {
        admit_returned(time);
        take_plan(time);
        const bool time_is_up = settings_.duration > 0 && time - start_ >= settings_.duration;
        if (time_is_up || interrupted_) manager_.stop();
        // Without filter units the rest is as fast as all before it.
        const bool ends = time_is_up || interrupted_ ||
                          (!settings_.units.filters.empty() && manager_.all_assigned());
        if (ends && !draining_) {
            draining_ = {time, manager_.ledger().open_groups()};
            results_.end_rates(time - start_);
        }
        assign_events(time);
        show_progress(time);
        if (manager_.drained()) stop();
        else if (time - last_progress_ > settings_.timeout)
            throw Error(fmt::format("no event was built for {:.1f} s, waiting for {}",
                                    seconds(time - last_progress_), describe_awaited()),
                        "check that these hosts are up, or raise --timeout");
    } else if (phase_ == Phase::stopping) {
        const std::vector<int> members = member_ranks();
        if (std::ranges::all_of(members, [this](int r) { return last_reports_.contains(r); }))
            phase_ = Phase::ended;
    }
}

std::vector<int> Coordinator::awaited_ranks() const {
    std::vector<int> ranks;
    if (phase_ == Phase::joining) {
        for (std::size_t r = 0; r < identities_.size(); ++r)
            if (!identities_[r]) ranks.push_back(static_cast<int>(r));
    } else if (phase_ == Phase::running) {
        ranks = manager_.busy_builders();
    } else {
        for (const int rank : member_ranks())
            if (!last_reports_.contains(rank)) ranks.push_back(rank);
    }
    return ranks;
}

std::string Coordinator::describe_awaited() const {
    const std::vector<int> ranks = awaited_ranks();
    std::string names;
    for (std::size_t i = 0; i < std::min(ranks.size(), max_named); ++i)
        names += (i ? ", " : "") + results_.label(ranks[i]);
    if (ranks.size() > max_named) names += fmt::format(" and {} more", ranks.size() - max_named);
    return names.empty() ? "other ranks" : names;
}

void Coordinator::stop() {
    phase_ = Phase::stopping;
    for (const int rank : member_ranks()) send_stop(rank);
    for (const int rank : returned_) send_stop(rank);
}

// Sends one stop for each of the buffers that the rank has posted, so that all are used up.
void Coordinator::send_stop(int rank) {
    for (int i = 0; i < manager_buffers; ++i)
        send(rank, std::make_shared<const Bytes>(encode_empty(MessageKind::stop)));
}

void Coordinator::write_results() {
    slices_.flush(member_ranks(), true,
                  [this](const Slice& slice) { results_.write_slice(slice); });
    for (const Loss& loss : losses_) results_.write_no_resume(loss.rank);
    results_.write(manager_, slices_);
}

}  // namespace assay::events
