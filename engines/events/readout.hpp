// A readout unit: makes the fragments of successive events at its input rate, and sends each bulk
// of them to the builder unit that the manager chose.
//
// A bulk stays in its buffer until its slot at the builder unit is given another one: by then it
// has been settled. If the builder unit is lost before, the bulk is sent to another. Fragments are
// written by the processor at the input rate, so that memory carries what a readout board would put
// there. With all buffers full, the input stops; the time is counted.
#pragma once

#include <deque>
#include <memory>
#include <random>

#include "events/barrier.hpp"
#include "events/member.hpp"

namespace assay::events {

class Builder;

class Readout {
public:
    // `local` is the builder unit of the same rank, if any.
    Readout(Member& member, Builder* local);

    void start(std::uint64_t next_bulk, Nanoseconds time);
    void on_batch(std::shared_ptr<const Batch> batch) { batches_.push_back(std::move(batch)); }
    // The membership has changed.
    void on_members();
    // A builder unit asks for the bulk of its slot.
    void on_request(int builder, const SlotNote& note);
    void on_barrier(int peer, const BarrierNote& note) { barrier_.hear(peer, note); }
    void on_sent(std::uint32_t buffer, bool success);
    void advance(Nanoseconds time);
    bool quiet() const { return in_flight_ == 0; }

    static std::size_t buffers(const Settings& settings);

private:
    static constexpr std::uint32_t none = ~0u;
    struct Buffer {
        std::byte* data;
        std::uint64_t bulk = 0;
        std::size_t bytes = 0, payload = 0;
        std::size_t place = 0;  // if held
        int sends = 0;          // in flight
        bool released = false;  // goes to the free ones when its sends have ended
        bool again = false;     // is queued again when its sends have ended
        Epoch epoch = 0;        // in rounds, of the step that it is sent in; 0: of none
        std::uint64_t step = 0;
    };
    // A round of the schedule: the places that are served, step by step; `none` is an idle step.
    struct Round {
        Epoch epoch;
        std::vector<std::uint32_t> steps{};
        std::size_t next = 0;
    };

    std::size_t place(const Place& place) const;
    int builder_of(std::size_t place) const;
    bool bind_next();
    void bind(std::size_t place, std::uint32_t buffer);
    void queue(std::size_t place);
    void begin_round(const Batch& batch);
    void release(std::uint32_t buffer);
    bool make(Nanoseconds time);
    void fill(Buffer& buffer, std::uint64_t bulk);
    void send_ready();
    std::uint32_t next_ready();
    bool send_rounds();
    bool send(std::size_t place);
    void end_step(std::uint64_t step);
    void make_again();
    void tell_barrier();

    Member& member_;
    const Settings& settings_;
    Builder* local_;
    const int source_;
    Memory memory_;
    std::vector<Buffer> buffers_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> held_;    // by place: the buffer, or none
    std::vector<std::uint64_t> wanted_;  // pull, by place: the bulk that was asked for, + 1
    std::deque<std::uint32_t> fresh_;    // made and not given out
    std::deque<std::shared_ptr<const Batch>> batches_;
    std::size_t bound_ = 0;  // of the first batch
    std::uint64_t next_bulk_ = 0, given_ = 0;
    Nanoseconds begun_ = 0, blocked_ = 0;  // start of the input; since when it is stopped
    double made_ = 0;                      // B

    int in_flight_ = 0;
    std::vector<int> order_;  // of builder units, for a shift
    std::size_t cursor_ = 0;
    std::vector<std::deque<std::uint32_t>> pending_;  // by builder unit, of a shift
    std::size_t pendings_ = 0;
    std::deque<std::uint32_t> ready_;  // places in order (all, pull) or in none (random)
    std::deque<Round> rounds_;
    Barrier barrier_;
    std::uint64_t step_ = 0, ended_ = 0;  // of this epoch: begun; ended without a gap
    std::deque<bool> done_steps_;         // from ended_ on
    // Bulks of before this rank came back, which builder units wait for: place and number.
    std::vector<std::pair<std::size_t, std::uint64_t>> old_requests_;
    std::uint64_t first_bulk_ = 0;
    const int max_in_flight_;
    std::mt19937 random_;
};

}  // namespace assay::events
