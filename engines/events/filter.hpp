// A filter unit: takes built events at its own rate, verifies them once more, and drops them.
//
// A builder unit offers an event and keeps it until the filter unit confirms that it has it. So a
// slow filter unit slows the builder units down, and nothing is dropped. An event that is offered
// again, because the first builder unit was lost, is not taken twice.
#pragma once

#include <array>
#include <deque>
#include <set>

#include "events/member.hpp"

namespace assay::events {

class Filter {
public:
    explicit Filter(Member& member);

    void on_offer(int builder, const SlotNote& note) { offers_.push_back({builder, note}); }
    void on_received(std::uint32_t buffer, bool success, Nanoseconds time);
    void on_lost(int rank);
    void advance(Nanoseconds time);

private:
    struct Offer {
        int builder;
        SlotNote note;
    };
    // Two events at once: one is received while the other is verified.
    struct Buffer {
        std::byte* data = nullptr;
        bool busy = false, full = false;
        Offer offer{};
    };
    std::uint32_t damaged(const Buffer& buffer) const;
    void remember(std::uint64_t bulk);

    Member& member_;
    const Settings& settings_;
    std::size_t capacity_;
    Memory memory_;
    std::array<Buffer, 2> buffers_;
    std::deque<Offer> offers_;
    std::set<std::uint64_t> taken_;  // the newest
    Nanoseconds free_at_ = 0;        // its rate
};

}  // namespace assay::events
