// The event manager's communication with the ranks, on rank 0. It tracks which ranks are members,
// were lost or came back, and sends and receives the messages. EventManager makes the decisions.
//
// A rank sends hello when it starts or comes back. A rank that came back becomes a member when
// every member is connected to it, because a message to a rank that is not connected would fail.
//
// A run by a plan tells the launcher who is a member. If the launcher knows the fabric it answers
// with a plan for these. Until then, and where it does not, ranks follow the steps that they have,
// without those that were lost.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/identity.hpp"
#include "events/manager.hpp"
#include "events/rank_context.hpp"
#include "events/results.hpp"
#include "events/slices.hpp"

namespace assay::events {

class Coordinator {
public:
    Coordinator(RankContext& context, Sink& sink);

    // The hello of rank 0 itself.
    void on_own_hello(const std::string& hello);
    // The message that was posted for the rank has arrived.
    void on_received(int rank, Nanoseconds time);
    void on_message(int rank, std::span<const std::byte> message, Nanoseconds time);
    void on_change(const PeerChange& change, Nanoseconds time);
    void on_receive_failed(int rank) { buffers_[static_cast<std::size_t>(rank)].posted = false; }
    void advance(Nanoseconds time);
    // All ranks have sent their last report.
    bool ended() const { return phase_ == Phase::ended; }
    // Writes the records of the whole run.
    void write_results();
    // On SIGINT: no new events are assigned.
    void interrupt() { interrupted_ = true; }
    // The labels of the ranks that it waits for, for error messages.
    std::string describe_awaited() const;
    // Messages to rank 0's own units.
    std::deque<std::shared_ptr<const Bytes>> own_messages;

private:
    enum class Phase : std::uint8_t { joining, running, stopping, ended };
    // The receive buffer for messages of a rank.
    struct Buffer {
        Bytes bytes;
        bool posted = false;
    };
    // A lost rank, until all others build events again.
    struct Loss {
        int rank;
        Nanoseconds noticed, last_built;  // last_built: the last event before the loss was noticed
        std::set<int> pending_builders;   // those that have not built an event since
    };
    // A rank that came back, until it takes part in the building of events again.
    struct Return {
        int rank;
        Nanoseconds lost, admitted;
    };
    void receive(int rank);
    void on_hello(int rank, const std::string& hello, Nanoseconds time);
    void begin(Nanoseconds time);
    void check_memory() const;
    void admit_returned(Nanoseconds time);
    void remove(int rank, Nanoseconds time);
    void request_plan(Nanoseconds time);
    void take_plan(Nanoseconds time);
    void on_plan(const std::string& line, Nanoseconds time);
    void on_done(const Done& done, Nanoseconds time);
    void on_parked(const Assignment& parked, Nanoseconds time);
    void on_damage(int rank, const Damage& damage);
    void record_resume(int builder, Nanoseconds assigned_at, Nanoseconds time);
    void record_return(int builder, Nanoseconds assigned_at, Nanoseconds time);
    void on_report(int rank, const Report& report);
    void assign_events(Nanoseconds time);
    void stop();
    void send_stop(int rank);
    void send(int rank, std::shared_ptr<const Bytes> message);
    void broadcast(Bytes message);
    std::vector<int> member_ranks() const;
    std::vector<int> awaited_ranks() const;
    void show_progress(Nanoseconds time);
    std::string describe_progress() const;
    void show_awaited(Nanoseconds time);

    RankContext& context_;
    const Settings& settings_;
    Results results_;
    Sink& sink_;
    EventManager manager_;
    Slices slices_;
    Phase phase_ = Phase::joining;
    std::vector<Buffer> buffers_;  // by rank
    std::vector<std::optional<Identity>> identities_;
    std::vector<double> needed_memory_, available_memory_;  // B of memory, by rank
    std::map<int, std::set<int>> seen_by_;  // by rank that came back: the ranks connected to it
    std::set<int> returned_;                // have said hello again
    std::set<int> last_reports_;
    std::vector<Loss> losses_;
    std::vector<Return> returns_;
    std::optional<Plan> plan_;            // the last one that the launcher has sent
    Nanoseconds plan_wanted_since_ = 0;   // by a changed membership; 0: it is not
    std::map<int, Nanoseconds> lost_at_;  // by rank that was lost
    // Since when no events are assigned any more, and how many groups were open then.
    struct Draining {
        Nanoseconds since;
        std::size_t open;
    };
    std::optional<Draining> draining_;
    Nanoseconds start_ = 0, last_progress_ = 0, last_built_ = 0, last_shown_ = 0;
    Nanoseconds closing_time_ = 0;            // spent on closing groups since the last batch
    std::optional<Nanoseconds> waits_since_;  // at the start, for other ranks
    bool interrupted_ = false;
    bool has_waited_ = false;  // at the start, for a rank that is late
};

}  // namespace assay::events
