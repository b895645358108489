// The dissemination barrier (see barrier.hpp).
#include "events/barrier.hpp"

#include <algorithm>

namespace assay::events {

void Barrier::begin(Epoch epoch, std::vector<int> ranks) {
    epoch_ = epoch;
    ranks_ = std::move(ranks);
    own_index_ = static_cast<std::size_t>(std::ranges::find(ranks_, rank_) - ranks_.begin());
    entered_ = passed_ = 0;
    round_ = 0;
    sent_ = false;
    received_.clear();
    outgoing_.clear();
    const auto early = std::exchange(early_, {});
    for (const auto& [peer, message] : early) on_message(peer, message);
}

int Barrier::rank_after(std::size_t distance) const {
    return ranks_[(own_index_ + distance) % ranks_.size()];
}

int Barrier::rank_before(std::size_t distance) const {
    const std::size_t n = ranks_.size();
    return ranks_[(own_index_ + n - distance % n) % n];
}

void Barrier::on_message(int peer, const BarrierMessage& message) {
    if (message.epoch > epoch_) early_.emplace_back(peer, message);
    if (message.epoch != epoch_ || message.round > 31 || message.number < passed_ ||
        rank_before(std::size_t{1} << message.round) != peer)
        return;
    received_.emplace(message.number, message.round);
    advance();
}

void Barrier::advance() {
    while (passed_ < entered_) {
        if ((std::size_t{1} << round_) >= ranks_.size()) {
            ++passed_;
            round_ = 0;
            continue;
        }
        if (!sent_) {
            outgoing_.push_back({rank_after(std::size_t{1} << round_), {epoch_, round_, passed_}});
            sent_ = true;
        }
        const auto entry = received_.find({passed_, round_});
        if (entry == received_.end()) return;
        received_.erase(entry);
        ++round_;
        sent_ = false;
    }
}

}  // namespace assay::events
