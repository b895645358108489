#include "events/filter.hpp"

#include <algorithm>
#include <cstring>

#include "events/builder.hpp"

namespace assay::events {
namespace {

// More than all slots of all builder units: an event is offered again only while it holds one.
std::size_t remembered(const Settings& settings) {
    return 4 * settings.units.builders.size() * static_cast<std::size_t>(settings.slots()) + 64;
}

std::size_t largest_event(const Settings& settings) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < settings.units.readouts.size(); ++i)
        bytes += aligned_capacity(settings, static_cast<int>(i));
    return bytes;
}

}  // namespace

Filter::Filter(Member& member)
    : member_(member),
      settings_(member.settings),
      capacity_(largest_event(settings_)),
      memory_(member.transport, capacity_ * (member.verify ? 2 : 1)) {
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        buffers_[i].data = memory_.data() + (member.verify ? i * capacity_ : 0);
}

void Filter::remember(std::uint64_t bulk) {
    taken_.insert(bulk);
    if (taken_.size() > remembered(settings_)) taken_.erase(taken_.begin());
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
                   static_cast<Nanoseconds>(static_cast<double>(buffer.offer.note.bytes) /
                                            settings_.filter_rate * 1e9);
}

// The number of damaged fragments; messages that cannot be read count with all of theirs.
std::uint32_t Filter::damaged(const Buffer& buffer) const {
    if (!member_.verify) return 0;
    const Bulk bulk = settings_.bulk(buffer.offer.note.bulk);
    std::uint32_t wrong = 0;
    std::size_t at = 0;
    for (std::uint32_t i = 0; i < buffer.offer.note.messages; ++i) {
        MessageHeader head{};
        if (at + sizeof head > buffer.offer.note.bytes) return wrong + bulk.events;
        std::memcpy(&head, buffer.data + at, sizeof head);
        if (head.source >= settings_.units.readouts.size()) return wrong + bulk.events;
        const int source = static_cast<int>(head.source);
        const std::size_t bytes = settings_.format.message_bytes(source, bulk);
        if (at + bytes > buffer.offer.note.bytes) return wrong + bulk.events;
        const Verdict verdict = verify_message(buffer.data + at, settings_.format, source, bulk);
        if (verdict.state == Verdict::State::other) wrong += bulk.events;
        wrong += static_cast<std::uint32_t>(verdict.damaged.size());
        at += bytes;
    }
    return wrong;
}

void Filter::advance(Nanoseconds time) {
    for (Buffer& buffer : buffers_) {
        if (!buffer.full) continue;
        if (time < free_at_) {
            member_.want(free_at_);
            break;
        }
        const Offer& offer = buffer.offer;
        SlotNote answer = offer.note;
        answer.messages = damaged(buffer);
        remember(offer.note.bulk);
        member_.to_unit(offer.builder, write_slot(MessageKind::taken, answer));
        buffer.busy = buffer.full = false;
    }
    while (!offers_.empty()) {
        const Offer offer = offers_.front();
        SlotNote answer = offer.note;
        if (taken_.contains(offer.note.bulk)) {
            answer.messages = 0;
            member_.to_unit(offer.builder, write_slot(MessageKind::taken, answer));
            offers_.pop_front();
            continue;
        }
        const auto free = std::ranges::find(buffers_, false, &Buffer::busy);
        const bool coming = std::ranges::any_of(buffers_, [&](const Buffer& b) {
            return b.busy && b.offer.note.bulk == offer.note.bulk;
        });
        if (free == buffers_.end() || coming || offer.note.bytes > capacity_) break;
        offers_.pop_front();
        free->busy = true;
        free->offer = offer;
        member_.post.receive(free->data, capacity_, tag::event,
                             {Doing::receive_event, offer.builder,
                              static_cast<std::uint32_t>(free - buffers_.begin())});
        member_.to_unit(offer.builder, write_slot(MessageKind::take, answer));
    }
}

}  // namespace assay::events
