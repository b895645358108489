// Accounts for every fragment of every assigned event (see ledger.hpp).
#include "events/ledger.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace assay::events {

Outcome& Outcome::operator+=(const Outcome& other) {
    events_built += other.events_built;
    events_incomplete += other.events_incomplete;
    built += other.built;
    partial += other.partial;
    lost += other.lost;
    corrupt += other.corrupt;
    duplicate += other.duplicate;
    return *this;
}

void Ledger::open(std::uint64_t group, const Entry& entry) {
    // Groups are opened in ascending order, so an older one has been opened before.
    if (group != next_group_)
        throw std::logic_error(fmt::format("event group {} is assigned twice", group));
    ++next_group_;
    open_.emplace_hint(open_.end(), group, entry);
    assigned_events_ += entry.events;
    assigned_fragments_ += std::uint64_t{entry.events} * entry.sources;
}

std::string Ledger::close(std::uint64_t group, const Outcome& outcome) {
    const auto position = open_.find(group);
    if (position == open_.end())
        return fmt::format("event group {} is reported {}", group,
                           group < next_group_ ? "a second time" : "before it was assigned");
    const Entry& entry = position->second;
    if (outcome.events() != entry.events)
        return fmt::format("event group {}: {} events reported of {}", group, outcome.events(),
                           entry.events);
    const std::uint64_t expected = std::uint64_t{entry.events} * entry.sources;
    if (outcome.fragments() != expected)
        return fmt::format("event group {}: {} fragments reported of {}", group,
                           outcome.fragments(), expected);
    if (outcome.built != outcome.events_built * entry.sources)
        return fmt::format("event group {}: {} fragments in {} events of {} sources", group,
                           outcome.built, outcome.events_built, entry.sources);
    total_ += outcome;
    open_.erase(position);
    return {};
}

}  // namespace assay::events
