// Keeps control messages in memory until they are sent.
#include "events/operations.hpp"

namespace assay::events {

void OperationTracker::send_control(int peer, int tag, std::shared_ptr<const Bytes> message) {
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(control_messages_.size()));
        control_messages_.emplace_back();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    control_messages_[index] = std::move(message);
    ++control_in_flight_;
    send(control_messages_[index]->data(), control_messages_[index]->size(), tag,
         {OperationKind::send_control, peer, index});
}

}  // namespace assay::events
