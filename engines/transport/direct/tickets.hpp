// The operations in flight of one rank. A ticket is reported once, as completed or as failed, and
// its number is then reused. Tickets of the transport's internal messages (collectives) are not
// reported; the transport checks their outcome and releases them.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/transport.hpp"

namespace assay::direct {

class Tickets {
public:
    enum class Outcome : std::uint8_t { pending, completed, failed };

    Ticket allocate(bool internal = false) {
        if (free_.empty()) {
            entries_.push_back({});
            free_.push_back(static_cast<Ticket>(entries_.size() - 1));
        }
        const Ticket ticket = free_.back();
        free_.pop_back();
        entries_[index(ticket)] = {Outcome::pending, internal};
        return ticket;
    }
    void complete(Ticket ticket, bool success) {
        if (ticket < 0) return;  // of a message without a ticket
        Entry& entry = entries_[index(ticket)];
        entry.outcome = success ? Outcome::completed : Outcome::failed;
        if (!entry.internal) (success ? completed_ : failed_).push_back(ticket);
    }
    Outcome outcome(Ticket internal) const { return entries_[index(internal)].outcome; }
    void release(Ticket internal) { free_.push_back(internal); }

    void report_completed(std::vector<Ticket>& to) { report(completed_, to); }
    void report_failed(std::vector<Ticket>& to) { report(failed_, to); }

private:
    struct Entry {
        Outcome outcome = Outcome::pending;
        bool internal = false;
    };
    static std::size_t index(Ticket ticket) { return static_cast<std::size_t>(ticket); }
    void report(std::vector<Ticket>& from, std::vector<Ticket>& to) {
        to.insert(to.end(), from.begin(), from.end());
        free_.insert(free_.end(), from.begin(), from.end());
        from.clear();
    }

    std::vector<Entry> entries_;
    std::vector<Ticket> free_, completed_, failed_;
};

}  // namespace assay::direct
