// Sends, receives, puts and gets of the null transport.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "transport/null/fabric.hpp"

namespace assay::null {

std::pair<Nanoseconds, Nanoseconds> Fabric::transfer(int source, int destination, const void* from,
                                                     void* to, std::size_t bytes, bool payload) {
    std::memcpy(to, from, bytes);
    if (payload) {
        const std::uint64_t number = payloads_[{source, destination}]++;
        for (const Faults::Flip& flip : faults_.flips)
            if (flip.source == source && flip.destination == destination && flip.message == number)
                static_cast<std::byte*>(to)[flip.offset] ^= std::byte{16};
    }
    const auto duration = [&](double rate) {
        return rate > 0 ? static_cast<Nanoseconds>(static_cast<double>(bytes) / rate * 1e9) : 0;
    };
    const Nanoseconds t = time();
    RankState &sender = state(source), &receiver = state(destination);
    sender.transmit_free =
        std::max(t, sender.transmit_free) + duration(rate(faults_.transmit, source));
    receiver.receive_free =
        std::max({t, receiver.receive_free + duration(rate(faults_.receive, destination)),
                  sender.transmit_free, t + duration(rate(faults_.receive, destination))});
    return {sender.transmit_free, receiver.receive_free + faults_.delay};
}

Ticket Fabric::post_send(int rank, const void* data, std::size_t bytes, int peer, int tag) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    if (state(rank).lost[static_cast<std::size_t>(peer)]) {
        post_failed(rank, ticket);
        return ticket;
    }
    auto& waiting = receives_[{rank, peer, tag}];
    if (waiting.empty()) {
        sends_[{rank, peer, tag}].push_back({const_cast<void*>(data), bytes, rank, ticket});
        return ticket;
    }
    const Posted receive = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] = transfer(rank, peer, data, receive.data, bytes, is_payload(tag));
    state(rank).pending.push_back({ticket, sent});
    state(peer).pending.push_back({receive.ticket, arrived});
    if (is_payload(tag)) duplicate(rank, peer, tag, data, bytes, arrived);
    wake();
    return ticket;
}

Ticket Fabric::post_receive(int rank, void* data, std::size_t bytes, int peer, int tag) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    if (state(rank).lost[static_cast<std::size_t>(peer)]) {
        post_failed(rank, ticket);
        return ticket;
    }
    auto& waiting = sends_[{peer, rank, tag}];
    if (waiting.empty()) {
        receives_[{peer, rank, tag}].push_back({data, bytes, rank, ticket});
        return ticket;
    }
    const Posted send = waiting.front();
    waiting.pop_front();
    const auto [sent, arrived] =
        transfer(peer, rank, send.data, data, std::min(bytes, send.bytes), is_payload(tag));
    if (send.rank >= 0) state(peer).pending.push_back({send.ticket, sent});
    state(rank).pending.push_back({ticket, arrived});
    if (send.rank >= 0 && is_payload(tag))
        duplicate(peer, rank, tag, send.data, send.bytes, arrived);
    wake();
    return ticket;
}

// Delivers the message that has just been transferred a second time, if a duplicate is planted.
void Fabric::duplicate(int source, int destination, int tag, const void* data, std::size_t bytes,
                       Nanoseconds due) {
    const std::uint64_t number = payloads_[{source, destination}] - 1;
    for (const Faults::Duplicate& planted : faults_.duplicates) {
        if (planted.source != source || planted.destination != destination ||
            planted.message != number)
            continue;
        auto& waiting = receives_[{source, destination, tag}];
        if (!waiting.empty()) {
            const Posted receive = waiting.front();
            waiting.pop_front();
            std::memcpy(receive.data, data, std::min(bytes, receive.bytes));
            state(destination).pending.push_back({receive.ticket, due});
            continue;
        }
        const auto* begin = static_cast<const std::byte*>(data);
        copies_.push_back(std::make_unique<std::vector<std::byte>>(begin, begin + bytes));
        sends_[{source, destination, tag}].push_back({copies_.back()->data(), bytes, -1, 0});
    }
}

Ticket Fabric::get(int rank, void* data, std::size_t bytes, int peer, std::size_t offset) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const Ticket ticket = take_ticket(state(rank));
    const auto [sent, arrived] =
        transfer(peer, rank, state(peer).window.data() + offset, data, bytes, true);
    state(rank).pending.push_back({ticket, arrived});
    return ticket;
}

void Fabric::put(int rank, const void* data, std::size_t bytes, int peer, std::size_t offset) {
    Lock lock(mutex_);
    check_aborted();
    count_operation(lock, rank);
    const auto [sent, arrived] =
        transfer(rank, peer, data, state(peer).window.data() + offset, bytes, true);
    Nanoseconds& due = state(rank).puts_due[peer];
    due = std::max(due, arrived);
}

void Fabric::flush(int rank, int peer) {
    Nanoseconds due = 0;
    {
        Lock lock(mutex_);
        check_aborted();
        due = state(rank).puts_due[peer];
        if (simulated()) wait_until(lock, rank, [&] { return time_ >= due; });
    }
    while (!simulated() && now() < due) sched_yield();
}

}  // namespace assay::null
