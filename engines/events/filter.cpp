// A filter unit (see filter.hpp).
#include "events/filter.hpp"

#include <algorithm>
#include <cstring>

#include "events/builder.hpp"

namespace assay::events {
namespace {

// Groups to remember: more than all slots of all builder units. An event is offered again only
// while it occupies a slot.
std::size_t max_received(const Settings& settings) {
    return 4 * settings.units.builders.size() * static_cast<std::size_t>(settings.slots()) + 64;
}

std::size_t event_capacity(const Settings& settings) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < settings.units.readouts.size(); ++i)
        bytes += aligned_capacity(settings, static_cast<int>(i));
    return bytes;
}

}  // namespace

Filter::Filter(RankContext& context)
    : context_(context),
      settings_(context.settings),
      capacity_(event_capacity(settings_)),
      memory_(context.transport, capacity_ * (context.verify ? 2 : 1)) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        buffers_[i].data = memory_.data() + (context.verify ? i * capacity_ : 0);
}

void Filter::mark_received(std::uint64_t group) {
    received_.insert(group);
    if (received_.size() > max_received(settings_)) received_.erase(received_.begin());
}

void Filter::on_lost(int rank) {
    std::erase_if(offers_, [rank](const Offer& offer) { return offer.builder == rank; });
}

void Filter::on_received(std::uint32_t index, bool success, Nanoseconds time) {
    Buffer& buffer = buffers_[index];
    buffer.full = success;
    buffer.busy = success;
    if (success && settings_.filter_rate > 0)
        free_at_ = std::max(time, free_at_) +
                   static_cast<Nanoseconds>(static_cast<double>(buffer.offer.message.bytes) /
                                            settings_.filter_rate * 1e9);
}

// The number of damaged fragments in a buffer. A message that cannot be read counts with all its
// fragments.
std::uint32_t Filter::count_damaged(const Buffer& buffer) const {
    if (!context_.verify) return 0;
    const EventGroup group = settings_.group(buffer.offer.message.group);
    std::uint32_t wrong = 0;
    std::size_t offset = 0;
    for (std::uint32_t i = 0; i < buffer.offer.message.messages; ++i) {
        MessageHeader header{};
        if (offset + sizeof header > buffer.offer.message.bytes) return wrong + group.events;
        std::memcpy(&header, buffer.data + offset, sizeof header);
        if (header.source >= settings_.units.readouts.size()) return wrong + group.events;
        const int source = static_cast<int>(header.source);
        const std::size_t bytes = settings_.format.message_bytes(source, group);
        if (offset + bytes > buffer.offer.message.bytes) return wrong + group.events;
        const MessageCheck check =
            verify_message(buffer.data + offset, settings_.format, source, group);
        if (check.state == MessageCheck::State::unexpected) wrong += group.events;
        wrong += static_cast<std::uint32_t>(check.damaged.size());
        offset += bytes;
    }
    return wrong;
}

void Filter::advance(Nanoseconds time) {
    for (Buffer& buffer : buffers_) {
        if (!buffer.full) continue;
        if (time < free_at_) {
            context_.schedule_wake(free_at_);
            break;
        }
        const Offer& offer = buffer.offer;
        SlotMessage answer = offer.message;
        answer.messages = count_damaged(buffer);
        mark_received(offer.message.group);
        context_.send_to_unit(offer.builder, encode_slot(MessageKind::confirm, answer));
        buffer.busy = buffer.full = false;
    }
    while (!offers_.empty()) {
        const Offer offer = offers_.front();
        SlotMessage answer = offer.message;
        if (received_.contains(offer.message.group)) {
            answer.messages = 0;
            context_.send_to_unit(offer.builder, encode_slot(MessageKind::confirm, answer));
            offers_.pop_front();
            continue;
        }
        const auto free = std::ranges::find(buffers_, false, &Buffer::busy);
        const bool in_transfer = std::ranges::any_of(buffers_, [&](const Buffer& b) {
            return b.busy && b.offer.message.group == offer.message.group;
        });
        if (free == buffers_.end() || in_transfer || offer.message.bytes > capacity_) break;
        offers_.pop_front();
        free->busy = true;
        free->offer = offer;
        context_.operations.receive(free->data, capacity_, tag::event,
                                    {OperationKind::receive_event, offer.builder,
                                     static_cast<std::uint32_t>(free - buffers_.begin())});
        context_.send_to_unit(offer.builder, encode_slot(MessageKind::accept, answer));
    }
}

}  // namespace assay::events
