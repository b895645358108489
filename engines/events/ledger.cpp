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

void Ledger::enter(std::uint64_t bulk, const Entry& entry) {
    // Bulks are entered in ascending order, so an older one has been entered before.
    if (bulk != next_) throw std::logic_error(fmt::format("bulk {} is given out twice", bulk));
    ++next_;
    open_.emplace_hint(open_.end(), bulk, entry);
    given_ += entry.events;
    fragments_ += std::uint64_t{entry.events} * entry.sources;
}

std::string Ledger::settle(std::uint64_t bulk, const Outcome& outcome) {
    const auto position = open_.find(bulk);
    if (position == open_.end())
        return fmt::format("bulk {} is reported {}", bulk,
                           bulk < next_ ? "a second time" : "before it was given out");
    const Entry& entry = position->second;
    if (outcome.events() != entry.events)
        return fmt::format("bulk {}: {} events reported of {}", bulk, outcome.events(),
                           entry.events);
    const std::uint64_t expected = std::uint64_t{entry.events} * entry.sources;
    if (outcome.fragments() != expected)
        return fmt::format("bulk {}: {} fragments reported of {}", bulk, outcome.fragments(),
                           expected);
    if (outcome.built != outcome.events_built * entry.sources)
        return fmt::format("bulk {}: {} fragments in {} events of {} sources", bulk, outcome.built,
                           outcome.events_built, entry.sources);
    total_ += outcome;
    open_.erase(position);
    return {};
}

}  // namespace assay::events
