#include "events/director.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace assay::events {
namespace {

constexpr Nanoseconds progress_interval = 1'000'000'000;
constexpr std::size_t max_named = 8;

EventManager::Options manager_options(const Member& member) {
    const Settings& s = member.settings;
    return {.ranks = member.transport.size(),
            .credits = s.credits,
            .slots = s.slots(),
            .in_rounds = s.in_rounds(),
            .events_per_bulk = s.events_per_message,
            .events = s.events,
            .drop = s.policy == Policy::drop};
}

}  // namespace

Director::Director(Member& member, Sink& sink)
    : member_(member),
      settings_(member.settings),
      results_(member.settings, sink),
      sink_(sink),
      manager_(member.settings.units, manager_options(member)),
      slices_(member.transport.size()),
      buffers_(static_cast<std::size_t>(member.transport.size())),
      identities_(buffers_.size()),
      needs_(buffers_.size()),
      available_(buffers_.size()) {
    for (int rank = 1; rank < member.transport.size(); ++rank) receive(rank);
}

void Director::receive(int rank) {
    Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
    if (buffer.posted) return;
    buffer.bytes.resize(manager_message);
    buffer.posted = true;
    member_.post.receive(buffer.bytes.data(), buffer.bytes.size(), tag::to_manager,
                         {Doing::from_rank, rank, 0});
}

void Director::send(int rank, std::shared_ptr<const Bytes> message) {
    if (rank == 0) to_self.push_back(std::move(message));
    else if (member_.connected[static_cast<std::size_t>(rank)])
        member_.post.mail(rank, tag::from_manager, std::move(message));
}

std::vector<int> Director::member_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < member_.transport.size(); ++rank)
        if (manager_.membership().has(rank)) ranks.push_back(rank);
    return ranks;
}

void Director::broadcast(Bytes message) {
    const auto shared = std::make_shared<const Bytes>(std::move(message));
    for (const int rank : member_ranks()) send(rank, shared);
}

void Director::greet_self(const std::string& hello) { on_hello(0, hello, 0); }

void Director::on_message(int rank, std::span<const std::byte> message, Nanoseconds time) {
    const MessageKind kind = kind_of(message);
    if (kind == MessageKind::hello) {
        on_hello(rank, read_hello(message), time);
    } else if (manager_.membership().has(rank)) {
        switch (kind) {
            case MessageKind::done: on_done(read_done(message), time); break;
            case MessageKind::parked: on_parked(read_parked(message), time); break;
            case MessageKind::sees: seen_[read_rank(message)].insert(rank); break;
            case MessageKind::damage: on_damage(rank, read_damage(message)); break;
            case MessageKind::misses: {
                const Misses misses = read_misses(message);
                const Membership& members = manager_.membership();
                if (misses.rank <= 0 || misses.rank >= member_.transport.size() ||
                    members.since[static_cast<std::size_t>(misses.rank)] != misses.since ||
                    misses.since == 0)
                    break;
                send(misses.rank, std::make_shared<const Bytes>(write_plain(MessageKind::evict)));
                lose(misses.rank, time);
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

void Director::on_received(int rank, Nanoseconds time) {
    Buffer& buffer = buffers_[static_cast<std::size_t>(rank)];
    buffer.posted = false;
    on_message(rank, buffer.bytes, time);
    if (!last_reports_.contains(rank)) receive(rank);
}

void Director::on_hello(int rank, const std::string& hello, Nanoseconds time) {
    const auto r = static_cast<std::size_t>(rank);
    const Json parsed = Json::parse(hello, nullptr, false);
    if (parsed.is_object() && parsed.contains("error"))
        throw Error(fmt::format("rank {}: {}", rank, printable(parsed["error"])),
                    printable(parsed["fix"]));
    try {
        identities_[r] = read_identity(parsed.at("identity").dump());
        needs_[r] = parsed.at("needs");
        available_[r] = parsed.at("available");
    } catch (const nlohmann::json::exception&) {
        throw Error(fmt::format("rank {} sent a greeting that cannot be read", rank),
                    "run the same version of Assay on every host");
    }
    if (phase_ == Phase::running) returned_.insert(rank);
    else if (phase_ != Phase::greeting) send_stop(rank);  // it came back too late
    if (phase_ != Phase::greeting) return;
    if (std::ranges::all_of(identities_, [](const auto& i) { return i.has_value(); })) begin(time);
}

// The ranks of a host share its memory.
void Director::check_memory() const {
    std::map<std::string, std::pair<double, double>> hosts;  // needed, available
    for (std::size_t r = 0; r < identities_.size(); ++r) {
        auto& [needed, available] = hosts[identities_[r]->host];
        needed += needs_[r];
        available = std::max(available, available_[r]);
    }
    if (!member_.transport.keeps_contents()) return;
    for (const auto& [host, memory] : hosts)
        if (memory.first > 0.8 * memory.second)
            throw Error(fmt::format("{}: the buffers need {:.1f} GiB of {:.1f} GiB available", host,
                                    memory.first / (1 << 30), memory.second / (1 << 30)),
                        "lower --fragment or --credits, or start fewer ranks on a host");
}

void Director::begin(Nanoseconds time) {
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
             std::make_shared<const Bytes>(write_welcome(
                 {results_.labels[static_cast<std::size_t>(rank)], 0, 0, manager_.membership()})));
    phase_ = Phase::running;
    begun_ = progress_ = shown_ = time;
}

void Director::on_change(const PeerChange& change, Nanoseconds time) {
    if (change.state == PeerChange::State::joined) {
        receive(change.rank);  // others may have seen it before
        return;
    }
    seen_.erase(change.rank);
    returned_.erase(change.rank);
    if (phase_ == Phase::greeting)
        throw Error(fmt::format("rank {} was lost before the start", change.rank),
                    "see its last messages; check that its host is up and reachable");
    lose(change.rank, time);
}

void Director::lose(int rank, Nanoseconds time) {
    if (phase_ == Phase::stopping && last_reports_.contains(rank)) return;  // it has ended
    if (!manager_.lose(rank)) return;
    const std::vector<int> builders = manager_.membership().of(settings_.units.builders);
    sink_.progress(0, fmt::format("{} was lost; {} builder units go on", results_.label(rank),
                                  builders.size()));
    for (Loss& loss : losses_) loss.left.erase(rank);
    if (phase_ == Phase::running && !manager_.ended())
        losses_.push_back({rank, time, progress_, {builders.begin(), builders.end()}});
    results_.lost(rank);
    broadcast(write_members(manager_.membership()));
    if (builders.empty() || manager_.membership().of(settings_.units.readouts).empty())
        throw Error(fmt::format("{} was lost: no {} units are left", results_.label(rank),
                                builders.empty() ? "builder" : "readout"),
                    "start more ranks");
}

void Director::admit_returned(Nanoseconds time) {
    std::vector<int> ready;
    for (const int rank : returned_) {
        if (manager_.membership().has(rank)) continue;
        const std::set<int>& seen = seen_[rank];
        if (std::ranges::all_of(member_ranks(), [&](int r) { return r == 0 || seen.contains(r); }))
            ready.push_back(rank);
    }
    if (ready.empty()) return;
    manager_.admit(ready);
    for (const int rank : ready) {
        returned_.erase(rank);
        seen_.erase(rank);
        last_reports_.erase(rank);
        results_.returned(rank);
        const auto slice =
            settings_.slice > 0 ? static_cast<std::uint64_t>((time - begun_) / settings_.slice) : 0;
        send(rank,
             std::make_shared<const Bytes>(write_welcome(
                 {results_.label(rank), manager_.next_bulk(), slice, manager_.membership()})));
    }
    const auto members = std::make_shared<const Bytes>(write_members(manager_.membership()));
    for (const int rank : member_ranks())
        if (std::ranges::find(ready, rank) == ready.end()) send(rank, members);
}

void Director::on_done(const Done& done, Nanoseconds time) {
    const Nanoseconds begin = now();
    const Nanoseconds assigned_at = manager_.given_at(done.assignment);
    const std::string problem = manager_.settle(done.assignment, done.outcome, time);
    if (!problem.empty())
        throw Error("the ledger does not fit: " + problem, "this is a defect of Assay");
    spent_ += now() - begin;
    progress_ = time;
    if (!losses_.empty()) note_resumed(done.assignment.place.builder, assigned_at, time);
}

void Director::on_parked(const Assignment& parked, Nanoseconds time) {
    if (manager_.park(parked)) progress_ = time;
}

// A loss is over when each builder unit has built an event that was given out after it.
void Director::note_resumed(int builder, Nanoseconds assigned_at, Nanoseconds time) {
    std::erase_if(losses_, [&](Loss& loss) {
        if (assigned_at >= loss.noticed) loss.left.erase(builder);
        if (!loss.left.empty()) return false;
        results_.resumed(loss.rank, seconds(time - loss.before));
        return true;
    });
}

void Director::on_damage(int rank, const Damage& damage) {
    if (damage.source < 0 || damage.source >= member_.transport.size()) return;
    results_.damage(rank, damage);
}

void Director::on_report(int rank, const Report& report) {
    slices_.add(rank, report);
    if (report.last && !report.more) last_reports_.insert(rank);
    slices_.take(member_ranks(), false, [this](const Slice& slice) { results_.slice(slice); });
}

void Director::give_out(Nanoseconds time) {
    for (;;) {
        const Nanoseconds begin = now();
        const std::optional<Batch> batch = manager_.plan(time);
        if (!batch) break;
        const Nanoseconds decision_time = now() - begin + std::exchange(spent_, 0);
        const auto events = static_cast<Nanoseconds>(batch->size() * settings_.events_per_message);
        results_.decision(decision_time, events);
        broadcast(write_batch(*batch));
    }
    if (const auto next = manager_.next_plan()) member_.want(std::max(*next, time + 1));
}

void Director::show_progress(Nanoseconds time) {
    if (time - shown_ < progress_interval) return;
    const Outcome& total = manager_.ledger().total();
    double share = 0;
    const double elapsed = seconds(time - begun_);
    if (settings_.events > 0)
        share = static_cast<double>(total.events()) / static_cast<double>(settings_.events);
    if (settings_.duration > 0) share = std::max(share, elapsed / seconds(settings_.duration));
    share = std::min(share, 1.0);
    const double rate = results_.last_rate();
    sink_.progress(share,
                   fmt::format("{} events built{}", total.events_built,
                               rate > 0 ? fmt::format(", {:.2f} GB/s", rate * 1e-9) : ""),
                   share > 0 ? elapsed / share - elapsed : -1);
    shown_ = time;
}

void Director::advance(Nanoseconds time) {
    if (phase_ == Phase::running) {
        admit_returned(time);
        const bool over = settings_.duration > 0 && time - begun_ >= settings_.duration;
        if (over || interrupted_) manager_.stop();
        give_out(time);
        show_progress(time);
        if (manager_.drained()) stop();
        else if (time - progress_ > settings_.timeout)
            throw Error(fmt::format("no event was built for {:.1f} s, waiting for {}",
                                    seconds(time - progress_), waits_for()),
                        "check that these hosts are up, or raise --timeout");
    } else if (phase_ == Phase::stopping) {
        const std::vector<int> members = member_ranks();
        if (std::ranges::all_of(members, [this](int r) { return last_reports_.contains(r); }))
            phase_ = Phase::ended;
    }
}

std::string Director::waits_for() const {
    std::vector<int> ranks;
    if (phase_ == Phase::greeting) {
        for (std::size_t r = 0; r < identities_.size(); ++r)
            if (!identities_[r]) ranks.push_back(static_cast<int>(r));
    } else if (phase_ == Phase::running) {
        ranks = manager_.waiting_for();
    } else {
        for (const int rank : member_ranks())
            if (!last_reports_.contains(rank)) ranks.push_back(rank);
    }
    std::string names;
    for (std::size_t i = 0; i < std::min(ranks.size(), max_named); ++i)
        names += (i ? ", " : "") + results_.label(ranks[i]);
    if (ranks.size() > max_named) names += fmt::format(" and {} more", ranks.size() - max_named);
    return names.empty() ? "other ranks" : names;
}

void Director::stop() {
    phase_ = Phase::stopping;
    for (const int rank : member_ranks()) send_stop(rank);
    for (const int rank : returned_) send_stop(rank);
}

// One for each of the buffers that the rank has posted.
void Director::send_stop(int rank) {
    for (int i = 0; i < manager_buffers; ++i)
        send(rank, std::make_shared<const Bytes>(write_plain(MessageKind::stop)));
}

void Director::write_results() {
    slices_.take(member_ranks(), true, [this](const Slice& slice) { results_.slice(slice); });
    for (const Loss& loss : losses_) results_.not_resumed(loss.rank);
    results_.write(manager_, slices_);
}

}  // namespace assay::events
