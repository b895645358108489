// Writes the records of an event builder.
#include "events/results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "events/measurements.hpp"

namespace assay::events {
namespace {

// Samples kept of a metric over time. A longer run keeps every second slice, then every fourth.
constexpr std::size_t max_samples = 4096;
constexpr std::size_t max_corruption_records = 64;

Summary single_summary(double value) { return summarize({&value, 1}); }

void drop_every_second(std::vector<double>& values) {
    for (std::size_t i = 0; 2 * i < values.size(); ++i) values[i] = values[2 * i];
    values.resize((values.size() + 1) / 2);
}

}  // namespace

std::string Results::label(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return r < labels.size() ? labels[r] : fmt::format("rank {}", rank);
}

Json Results::params() const {
    static constexpr const char* orders[] = {"shift", "random", "all", "file"};
    static constexpr const char* policies[] = {"drop", "mark", "wait"};
    Json params = {{"protocol", settings_.pull ? "pull" : "push"},
                   {"schedule", orders[static_cast<int>(settings_.order)]},
                   {"synchronised", settings_.synchronised},
                   {"fragment", settings_.fragment},
                   {"credits", settings_.credits},
                   {"ranks", labels.size()},
                   {"readouts", settings_.units.readouts.size()},
                   {"builders", settings_.units.builders.size()}};
    if (settings_.pull) params["parallel"] = settings_.parallel;
    else params["in_flight"] = settings_.in_flight;
    if (!settings_.units.filters.empty()) params["filters"] = settings_.units.filters.size();
    if (settings_.events_per_message > 1)
        params["events_per_message"] = settings_.events_per_message;
    if (settings_.rate > 0) params["rate"] = settings_.rate;
    params["policy"] = policies[static_cast<int>(settings_.policy)];
    return params;
}

void Results::emit_single(std::string_view metric, double value, const Subject& subject,
                          const Json& extra) {
    Json all = params();
    all.update(extra);
    sink_.measurement(build, metric, subject, all, single_summary(value));
}

void Results::write_slice(const Slice& slice) {
    if (slice.span <= 0) return;
    const double span = seconds(slice.span);
    const double network = static_cast<double>(slice.received) / span;
    const double rate = network + static_cast<double>(slice.received_local) / span;
    const bool full = slice.span >= settings_.slice;
    const double begin = static_cast<double>(slice.number) * seconds(settings_.slice);
    const bool counts = full && begin + seconds(settings_.slice) / 2 < seconds(rates_end_);
    if (!counts && slices_ == 0 && first_rate_ == 0) {
        first_rate_ = rate;
        first_network_rate_ = network;
    }
    if (!full && slices_ > 0) return;
    last_rate_ = rate;
    const Json params = {{"t", begin}, {"span", span}};
    sink_.measurement(slices, "throughput", {}, params, single_summary(rate));
    if (slice.latency.total() > 0)
        sink_.measurement(slices, "latency", {}, params, slice.latency.summary());
    std::vector<std::pair<std::uint64_t, int>> builders;
    for (const auto& [rank, bytes] : slice.received_by)
        if (std::ranges::binary_search(settings_.units.builders, rank))
            builders.emplace_back(bytes, rank);
    if (!builders.empty()) {
        const auto [bytes, rank] = *std::ranges::min_element(builders);
        last_slowest_ = {rank, static_cast<double>(bytes) / span};
        sink_.measurement(slices, "rank_throughput", {.host = label(rank)}, params,
                          single_summary(last_slowest_.rate));
    }
    if (!counts) return;
    if (slices_++ % keep_every_ != 0) return;
    rates_.push_back(rate);
    network_rates_.push_back(network);
    if (rates_.size() < max_samples) return;
    drop_every_second(rates_);
    drop_every_second(network_rates_);
    keep_every_ *= 2;
}

void Results::add_decision(Nanoseconds spent, Nanoseconds events) {
    decisions_.record(spent / std::max<Nanoseconds>(events, 1));
}

void Results::write_damage(int builder, const Damage& damage) {
    if (corruption_records_++ >= max_corruption_records) return;
    sink_.corruption(build, {.host = label(damage.source), .peer = label(builder)}, params(),
                     damage.event, damage.offset, damage.expected, damage.observed);
}

void Results::write_resume(int rank, double seconds) {
    emit_single("resume", seconds, {}, {{"lost", label(rank)}});
}

void Results::write_no_resume(int rank) {
    Json all = params();
    all["lost"] = label(rank);
    sink_.waived(build, "resume", {}, all,
                 "the run ended before every builder unit had built an event again");
}

void Results::write_return(int rank, double seconds) {
    emit_single("return", seconds, {}, {{"lost", label(rank)}});
}

void Results::write_replan(double seconds, std::size_t steps) {
    emit_single("replan", seconds, {}, {{"steps", steps}});
}

void Results::write_rates(const Slices& all) {
    if (rates_.empty() && first_rate_ > 0) {
        rates_ = {first_rate_};
        network_rates_ = {first_network_rate_};
    }
    const Json run_params = params();
    if (!rates_.empty()) {
        sink_.measurement(build, "throughput", {}, run_params, summarize(rates_), rates_);
        sink_.measurement(build, "network_throughput", {}, run_params, summarize(network_rates_),
                          network_rates_);
    }
    if (all.latency.total() > 0)
        sink_.measurement(build, "latency", {}, run_params, all.latency.summary());
    if (decisions_.total() > 0)
        sink_.measurement(build, "decision", {.host = label(0)}, run_params, decisions_.summary());
}

void Results::write_ranks(const EventManager& manager, const Slices& all) {
    for (std::size_t r = 0; r < all.totals.size(); ++r) {
        const RankTotals& total = all.totals[r];
        const int rank = static_cast<int>(r);
        if (total.time <= 0) continue;
        const double time = seconds(total.time);
        const Subject subject{.host = label(rank), .rank = rank};
        const bool stayed = manager.membership().has_since(rank, 1);
        const auto rate = [&](const char* direction, std::uint64_t bytes) {
            emit_single("rank_throughput", static_cast<double>(bytes) / time, subject,
                        {{"direction", direction}, {"stayed", stayed}});
        };
        const auto has_unit = [rank](const std::vector<int>& units) {
            return std::ranges::binary_search(units, rank);
        };
        if (total.packets_sent > 0) {
            emit_single("packets_sent", static_cast<double>(total.packets_sent), subject);
            emit_single("packets_resent", static_cast<double>(total.packets_resent), subject);
        }
        if (has_unit(settings_.units.readouts)) {
            rate("sent", total.sent);
            emit_single("backpressure", seconds(total.waited_credits), subject,
                        {{"waiting_for", "credits"}});
        }
        if (has_unit(settings_.units.builders)) {
            rate("received", total.received);
            if (!settings_.units.filters.empty())
                emit_single("backpressure", seconds(total.waited_filter), subject,
                            {{"waiting_for", "filter"}});
        }
    }
}

// Every assigned event must have been closed, and every source that stayed must have made a
// fragment for each event.
void Results::check_ledger(const EventManager& manager, const Slices& all) const {
    const Ledger& ledger = manager.ledger();
    if (!ledger.balances())
        throw Error(fmt::format("the ledger does not balance: {} fragments assigned, {} accounted "
                                "for, {} event groups open",
                                ledger.assigned_fragments(), ledger.total().fragments(),
                                ledger.open_groups()),
                    "this is a defect of Assay");
    for (const int rank : settings_.units.readouts) {
        if (!manager.membership().has_since(rank, 1)) continue;
        const std::uint64_t assigned = all.totals[static_cast<std::size_t>(rank)].assigned_events;
        if (assigned != ledger.assigned_events())
            throw Error(fmt::format("the ledger does not balance: {} had fragments of {} events, "
                                    "{} were assigned",
                                    label(rank), assigned, ledger.assigned_events()),
                        "this is a defect of Assay");
    }
}

void Results::write(const EventManager& manager, const Slices& all) {
    write_rates(all);
    write_ranks(manager, all);
    const Outcome& total = manager.ledger().total();
    const std::pair<const char*, std::uint64_t> counts[] = {
        {"events_built", total.events_built},
        {"events_incomplete", total.events_incomplete},
        {"fragments_built", total.built},
        {"fragments_lost", total.lost},
        {"fragments_partial", total.partial},
        {"fragments_corrupt", total.corrupt},
        {"fragments_duplicate", total.duplicate},
        {"events_reassigned", manager.reassigned() * settings_.events_per_message},
    };
    std::string lost;
    for (const int rank : lost_) lost += (lost.empty() ? "" : ",") + label(rank);
    for (const auto& [metric, count] : counts)
        emit_single(
            metric, static_cast<double>(count), {},
            lost.empty() ? Json::object() : Json{{"lost", lost}, {"returned", returned_.size()}});
    check_ledger(manager, all);
}

}  // namespace assay::events
