// A rank's operations in flight: the operation behind each ticket of the transport, and the memory
// of control messages until they are sent.
#pragma once

#include <memory>
#include <vector>

#include "events/messages.hpp"
#include "transport/transport.hpp"

namespace assay::events {

// Tags of the transport. Fragments of slot s have the tag `fragments + s`. In SimGrid, messages
// with tags from 32 on are payloads, whose contents are not kept
// (transport/simulated_requests.hpp).
namespace tag {
inline constexpr int to_manager = 16, from_manager = 17, unit = 18, event = 32, fragments = 64;
}  // namespace tag

enum class OperationKind : std::uint8_t {
    send_control,          // index: of the message's memory
    receive_from_rank,     // the manager receives from the peer
    receive_from_manager,  // index: of the buffer
    receive_from_unit,
    send_fragment,     // index: the buffer of the readout unit
    receive_fragment,  // index: the slot
    send_event,        // index: the slot
    receive_event,     // index: the buffer of the filter unit
};
struct Operation {
    OperationKind kind;
    int peer;
    std::uint32_t index;
};

// Posts operations and tracks them by their tickets.
class OperationTracker {
public:
    explicit OperationTracker(Transport& transport) : transport_(transport) {}

    void send(const void* data, std::size_t bytes, int tag, const Operation& operation) {
        track(transport_.send(data, bytes, operation.peer, tag), operation);
    }
    void receive(void* data, std::size_t bytes, int tag, const Operation& operation) {
        track(transport_.receive(data, bytes, operation.peer, tag), operation);
    }
    void send_control(int peer, int tag, std::shared_ptr<const Bytes> message);
    std::size_t control_in_flight() const { return control_in_flight_; }  // unfinished sends
    // Calls on_completed(operation, success) for each operation that has ended. Returns their
    // number.
    template <class Callback>
    std::size_t poll(Callback on_completed) {
        tickets_.clear();
        transport_.poll(tickets_);
        const std::size_t succeeded = tickets_.size();
        if (transport_.survives()) transport_.poll_failed(tickets_);
        // Operations posted by on_completed() may reuse the tickets, so all are looked up first.
        completed_.clear();
        for (const Ticket ticket : tickets_)
            completed_.push_back(operations_[static_cast<std::size_t>(ticket)]);
        for (std::size_t i = 0; i < completed_.size(); ++i) {
            if (completed_[i].kind == OperationKind::send_control)
                free_control(completed_[i].index);
            else on_completed(completed_[i], i < succeeded);
        }
        return tickets_.size();
    }

private:
    void track(Ticket ticket, const Operation& operation) {
        const auto i = static_cast<std::size_t>(ticket);
        if (i >= operations_.size()) operations_.resize(i + 64);
        operations_[i] = operation;
    }
    void free_control(std::uint32_t index) {
        control_messages_[index].reset();
        free_.push_back(index);
        --control_in_flight_;
    }

    Transport& transport_;
    std::vector<Operation> operations_;  // by ticket
    std::vector<Ticket> tickets_;
    std::vector<Operation> completed_;
    std::vector<std::shared_ptr<const Bytes>> control_messages_;
    std::vector<std::uint32_t> free_;
    std::size_t control_in_flight_ = 0;
};

// Memory of the transport, freed with its owner.
class Memory {
public:
    Memory(Transport& transport, std::size_t bytes)
        : transport_(transport), data_(transport.allocate(bytes)) {}
    ~Memory() { transport_.release(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::byte* data() const { return data_; }

private:
    Transport& transport_;
    std::byte* data_;
};

}  // namespace assay::events
