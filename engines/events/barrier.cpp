#include "events/barrier.hpp"

#include <algorithm>

namespace assay::events {

void Barrier::begin(Epoch epoch, std::vector<int> ranks) {
    epoch_ = epoch;
    ranks_ = std::move(ranks);
    own_ = static_cast<std::size_t>(std::ranges::find(ranks_, rank_) - ranks_.begin());
    entered_ = passed_ = 0;
    round_ = 0;
    told_ = false;
    heard_.clear();
    outgoing_.clear();
    const auto early = std::exchange(early_, {});
    for (const auto& [peer, note] : early) hear(peer, note);
}

int Barrier::place(std::size_t from, std::size_t distance, bool back) const {
    const std::size_t n = ranks_.size();
    return ranks_[(from + (back ? n - distance % n : distance)) % n];
}

void Barrier::hear(int peer, const BarrierNote& note) {
    if (note.epoch > epoch_) early_.emplace_back(peer, note);
    if (note.epoch != epoch_ || note.round > 31 || note.number < passed_ ||
        place(own_, std::size_t{1} << note.round, true) != peer)
        return;
    heard_.emplace(note.number, note.round);
    go_on();
}

void Barrier::go_on() {
    while (passed_ < entered_) {
        if ((std::size_t{1} << round_) >= ranks_.size()) {
            ++passed_;
            round_ = 0;
            continue;
        }
        if (!told_) {
            outgoing_.push_back(
                {place(own_, std::size_t{1} << round_, false), {epoch_, round_, passed_}});
            told_ = true;
        }
        const auto entry = heard_.find({passed_, round_});
        if (entry == heard_.end()) return;
        heard_.erase(entry);
        ++round_;
        told_ = false;
    }
}

}  // namespace assay::events
