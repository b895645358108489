// Measures queueing delay and a rank's rate (see queueing.hpp).
#include "transport/udp/queueing.hpp"

#include <utility>

namespace assay::udp {
namespace {

// A shorter delay is that of the host, not that of a network's queue.
constexpr Nanoseconds min_overflow = 2'000'000;
constexpr Nanoseconds rate_interval = 250'000'000;

}  // namespace

void FairShare::record(std::uint64_t delivered, std::size_t peers, Nanoseconds time) {
    if (time_ == 0 || delivered < delivered_) {  // the first time, or a peer is gone
        delivered_ = delivered;
        time_ = time;
        return;
    }
    if (time - time_ < rate_interval) return;
    const double rate = static_cast<double>(delivered - std::exchange(delivered_, delivered)) /
                        seconds(time - std::exchange(time_, time));
    rate_.record(static_cast<std::int64_t>(rate), time);
    bytes_ = static_cast<std::size_t>(static_cast<double>(rate_.value()) * seconds(max_in_flight) /
                                      static_cast<double>(std::max<std::size_t>(1, peers)));
}

void QueueingDelay::on_arrival(Nanoseconds sent, Nanoseconds arrived, Nanoseconds time) {
    sent_ = sent;
    arrived_ = arrived;
    forward_.record(arrived - sent, time);
    latest_ = arrived - sent - forward_.value();
}

void QueueingDelay::on_answer(Nanoseconds answered, Nanoseconds received, Nanoseconds time) {
    back_.record(received - answered, time);
    // Both clocks may be set at any time.
    const Nanoseconds trip =
        std::max<Nanoseconds>(0, received - sent_ - std::max<Nanoseconds>(0, answered - arrived_));
    round_trip_ = std::min(trip, round_trip_.value_or(trip));
    const Nanoseconds never_empty =
        std::max<Nanoseconds>(0, forward_.value() + back_.value() - *round_trip_);
    sum_ += std::min(latest_ + never_empty / 2, trip - *round_trip_);
    ++count_;
}

Nanoseconds QueueingDelay::take_mean() {
    return std::exchange(sum_, 0) / std::max<Nanoseconds>(1, std::exchange(count_, 0));
}

void QueueingDelay::on_loss() {
    overflow_ = overflow_ == 0 ? latest_ : (3 * overflow_ + latest_) / 4;
}

bool QueueingDelay::has_overflowed() const { return overflow_ >= min_overflow; }

double QueueingDelay::fullness() const {
    if (!has_overflowed()) return 0;
    return std::min(1.0, static_cast<double>(latest_) / static_cast<double>(overflow_));
}

}  // namespace assay::udp
