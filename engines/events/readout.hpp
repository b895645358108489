// A readout unit: produces the fragments of successive events at its input rate, and sends each
// group of them to the builder unit that the manager chose.
//
// A group stays in its buffer until its slot at the builder unit is assigned another group: by then
// the manager has closed the first. If the builder unit is lost before, the group is sent to
// another. The processor writes the fragments at the input rate, so the load on memory is that of a
// readout board. While all buffers are full, the input stops; that time is counted.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <variant>

#include "events/barrier.hpp"
#include "events/rank_context.hpp"

namespace assay::events {

class Builder;

class Readout {
public:
    // `local` is the builder unit of the same rank, if any.
    Readout(RankContext& context, Builder* local);

    void start(std::uint64_t next_group, Nanoseconds time);
    void on_batch(std::shared_ptr<const Batch> batch) { batches_.emplace_back(std::move(batch)); }
    // The steps of the batches that follow.
    void on_plan(Steps steps) { batches_.emplace_back(std::move(steps)); }
    void on_members();
    // A builder unit requests the group of its slot.
    void on_request(int builder, const SlotMessage& request);
    void on_barrier(int peer, const BarrierMessage& message) { barrier_.on_message(peer, message); }
    void on_sent(int builder, std::uint32_t buffer, bool success);
    void advance(Nanoseconds time);
    bool is_idle() const { return in_flight_ == 0; }

    static std::size_t buffers(const Settings& settings);  // their number

private:
    static constexpr std::uint32_t none = ~0u;
    struct Buffer {
        std::byte* data;
        std::uint64_t group = 0;
        std::size_t bytes = 0, payload = 0;
        std::size_t slot_index = 0;  // if it holds a group for one
        int sends = 0;               // in flight
        bool released = false;       // becomes free when its sends have ended
        bool resend = false;         // is queued again when its sends have ended
        Epoch epoch = 0;             // in rounds: of the step in which it is sent; 0: none
        std::uint64_t step = 0;
    };
    // A round of the schedule: the slots that are served, step by step; `none` is an idle step.
    struct Round {
        Epoch epoch;
        std::vector<std::uint32_t> steps{};
        std::size_t next = 0;
    };

    std::size_t slot_index(const BuilderSlot& slot) const;
    std::size_t builder_index(int builder) const;
    int builder_of(std::size_t slot_index) const;
    bool is_requested(std::size_t slot_index) const;
    bool is_meant_for_current(const Batch& batch, int builder) const;
    std::uint32_t next_in_shift();
    bool assign_next();
    void assign_buffer(std::size_t slot_index, std::uint32_t buffer);
    void enqueue(std::size_t slot_index);
    void drop_queued(int builder);
    void begin_round(const Batch& batch);
    void release(std::uint32_t buffer);
    bool produce(Nanoseconds time);
    void fill_buffer(Buffer& buffer, std::uint64_t group);
    void send_ready();
    std::uint32_t next_ready();
    bool send_rounds();
    bool send(std::size_t slot_index);
    void finish_step(std::uint64_t step);
    void regenerate();
    void send_barrier_messages();

    RankContext& context_;
    const Settings& settings_;
    Builder* local_builder_;
    const int source_;
    Memory memory_;
    std::vector<Buffer> buffers_;
    std::vector<std::uint32_t> free_buffers_;
    std::vector<std::uint32_t> buffer_of_slot_;  // by slot index: the buffer, or none
    // Pull, by slot index: the number of the requested group + 1; 0: none.
    std::vector<std::uint64_t> requested_group_;
    std::deque<std::uint32_t> unassigned_;  // produced and not assigned
    std::deque<std::variant<std::shared_ptr<const Batch>, Steps>> batches_;
    std::size_t next_in_batch_ = 0;  // index in the first batch
    std::uint64_t next_group_ = 0, assigned_events_ = 0;
    Nanoseconds input_start_ = 0, input_stopped_at_ = 0;  // stopped at: 0 while it runs
    double produced_ = 0;                                 // B

    int in_flight_ = 0;
    std::vector<int> in_flight_to_;  // by builder unit
    std::vector<int> builders_;      // that are members
    std::vector<int> shift_order_;   // builder units in the order of the shift
    std::size_t shift_position_ = 0;
    std::vector<std::deque<std::uint32_t>> shift_queues_;  // slots to serve, by builder unit
    std::size_t shift_queued_ = 0;
    std::deque<std::uint32_t> ready_;  // slots to serve; taken in order (all) or at random
    std::deque<Round> rounds_;
    Barrier barrier_;
    // Steps of this epoch. finished: all steps before it are finished too.
    std::uint64_t started_steps_ = 0, finished_steps_ = 0;
    std::deque<bool> done_steps_;  // from finished_steps_ on
    // Requests for groups from before this rank was lost: slot index and group number.
    std::vector<std::pair<std::size_t, std::uint64_t>> old_requests_;
    std::uint64_t first_group_ = 0;
    const int max_in_flight_, max_to_each_;  // of all builder units, of one
    std::mt19937 random_;
};

}  // namespace assay::events
