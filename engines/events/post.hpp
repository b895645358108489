// A rank's operations in flight: the operation of each ticket of the transport, and the memory of
// small messages until they are sent.
#pragma once

#include <memory>
#include <vector>

#include "events/messages.hpp"
#include "transport/transport.hpp"

namespace assay::events {

// Tags of the transport. Fragments of slot s have the tag `fragments + s`. In SimGrid (its
// simulated_requests.hpp) payloads, which keep no contents there, have tags from 32 on.
namespace tag {
inline constexpr int to_manager = 16, from_manager = 17, unit = 18, event = 32, fragments = 64;
}  // namespace tag

enum class Doing : std::uint8_t {
    mail,          // a small message is sent; index: of its memory
    from_rank,     // the manager receives from the peer
    from_manager,  // index: of the buffer
    from_unit,
    send_fragment,     // index: the buffer of the readout unit
    receive_fragment,  // index: the slot
    send_event,        // index: the slot
    receive_event,     // index: the buffer of the filter unit
};
struct Operation {
    Doing doing;
    int peer;
    std::uint32_t index;
};

class Post {
public:
    explicit Post(Transport& transport) : transport_(transport) {}

    void send(const void* data, std::size_t bytes, int tag, const Operation& operation) {
        note(transport_.send(data, bytes, operation.peer, tag), operation);
    }
    void receive(void* data, std::size_t bytes, int tag, const Operation& operation) {
        note(transport_.receive(data, bytes, operation.peer, tag), operation);
    }
    void mail(int peer, int tag, std::shared_ptr<const Bytes> message);
    std::size_t mails() const { return mails_; }  // not yet sent
    // Calls ended(operation, success) for each operation that has ended. Returns their number.
    template <class Ended>
    std::size_t poll(Ended ended) {
        done_.clear();
        transport_.poll(done_);
        const std::size_t completed = done_.size();
        if (transport_.survives()) transport_.poll_failed(done_);
        // Tickets are used again by what is posted meanwhile.
        ended_.clear();
        for (const Ticket ticket : done_)
            ended_.push_back(operations_[static_cast<std::size_t>(ticket)]);
        for (std::size_t i = 0; i < ended_.size(); ++i) {
            if (ended_[i].doing == Doing::mail) forget_mail(ended_[i].index);
            else ended(ended_[i], i < completed);
        }
        return done_.size();
    }

private:
    void note(Ticket ticket, const Operation& operation) {
        const auto i = static_cast<std::size_t>(ticket);
        if (i >= operations_.size()) operations_.resize(i + 64);
        operations_[i] = operation;
    }
    void forget_mail(std::uint32_t index) {
        mail_[index].reset();
        free_.push_back(index);
        --mails_;
    }

    Transport& transport_;
    std::vector<Operation> operations_;  // by ticket
    std::vector<Ticket> done_;
    std::vector<Operation> ended_;
    std::vector<std::shared_ptr<const Bytes>> mail_;
    std::vector<std::uint32_t> free_;
    std::size_t mails_ = 0;
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
