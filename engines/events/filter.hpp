// A filter unit: takes built events at its own rate, verifies them once more, and drops them.
//
// A builder unit offers an event and keeps it until the filter unit confirms it. So a slow filter
// unit slows the builder units down, and nothing is dropped. An event that is offered again,
// because its first builder unit was lost, is confirmed without a second transfer.
#pragma once

#include <array>
#include <deque>
#include <set>

#include "events/rank_context.hpp"

namespace assay::events {

class Filter {
public:
    explicit Filter(RankContext& context);

    void on_offer(int builder, const SlotMessage& message) {
        offers_.push_back({builder, message});
    }
    void on_received(std::uint32_t buffer, bool success, Nanoseconds time);
    void on_lost(int rank);
    void advance(Nanoseconds time);

private:
    struct Offer {
        int builder;
        SlotMessage message;
    };
    // Double buffering: one event is received while the other is verified.
    struct Buffer {
        std::byte* data = nullptr;
        bool busy = false, full = false;
        Offer offer{};
    };
    std::uint32_t count_damaged(const Buffer& buffer) const;
    void mark_received(std::uint64_t group);

    RankContext& context_;
    const Settings& settings_;
    std::size_t capacity_;
    Memory memory_;
    std::array<Buffer, 2> buffers_;
    std::deque<Offer> offers_;
    std::set<std::uint64_t> received_;  // numbers of the newest groups
    Nanoseconds free_at_ = 0;           // when the filter rate permits the next event
};

}  // namespace assay::events
