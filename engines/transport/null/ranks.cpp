// The ranks of the null transport, each a thread.
#include <cstdlib>
#include <thread>

#include "core/error.hpp"
#include "transport/null/fabric.hpp"

namespace assay {
namespace {

using null::Fabric;
using null::Killed;

class NullRank final : public Transport {
public:
    NullRank(Fabric& fabric, int rank) : fabric_(fabric), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return fabric_.size(); }
    std::string library() const override { return "null"; }
    bool simulated() const override { return fabric_.simulated(); }
    Nanoseconds clock() const override { return fabric_.clock(); }
    Ticket send(const void* data, std::size_t bytes, int peer, int tag) override {
        return fabric_.post_send(rank_, data, bytes, peer, tag);
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) override {
        return fabric_.post_receive(rank_, data, bytes, peer, tag);
    }
    Ticket get(void* data, std::size_t bytes, int peer, std::size_t offset) override {
        return fabric_.get(rank_, data, bytes, peer, offset);
    }
    void put(const void* data, std::size_t bytes, int peer, std::size_t offset) override {
        fabric_.put(rank_, data, bytes, peer, offset);
    }
    void flush(int peer) override { fabric_.flush(rank_, peer); }
    void poll(std::vector<Ticket>& completed) override { fabric_.poll(rank_, completed); }
    void wake_at(Nanoseconds time) override { fabric_.wake_at(rank_, time); }
    bool survives() const override { return fabric_.survives(); }
    void peer_changes(std::vector<PeerChange>& changes) override {
        fabric_.changes(rank_, changes);
    }
    void poll_failed(std::vector<Ticket>& failed) override { fabric_.failed(rank_, failed); }
    std::optional<std::string> launcher_line() override { return fabric_.launcher_line(rank_); }
    std::byte* create_window(std::size_t bytes) override {
        return fabric_.create_window(rank_, bytes);
    }
    void free_window() override {}
    void begin_sum(std::span<double> values) override {
        fabric_.begin_reduction(rank_, values, true);
    }
    void begin_max(std::span<double> values) override {
        fabric_.begin_reduction(rank_, values, false);
    }
    bool test_collective() override { return fabric_.test_reduction(rank_); }
    std::vector<std::string> gather(const std::string& value) override {
        return fabric_.gather(rank_, value);
    }
    void broadcast(std::string& value) override { fabric_.broadcast(rank_, value); }
    [[noreturn]] void abort(int status) override { fabric_.abort(status); }

private:
    Fabric& fabric_;
    const int rank_;
};

// Runs the body once. Returns true if the rank was killed and has come back.
bool run_rank(Fabric& fabric, int rank, const std::function<void(Transport&)>& body) {
    NullRank transport(fabric, rank);
    try {
        body(transport);
        return false;
    } catch (const Killed&) {
    }
    return fabric.restart(rank);
}

}  // namespace

void run_null_ranks(int ranks, const Faults& faults, const std::function<void(Transport&)>& body) {
    Fabric fabric(ranks, faults);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    {
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(ranks));
        const auto live = [&](int rank) {
            try {
                for (bool is_alive = true; is_alive;) is_alive = run_rank(fabric, rank, body);
            } catch (...) {
                errors[static_cast<std::size_t>(rank)] = std::current_exception();
                fabric.end(2);  // the other ranks would wait for this one
            }
            fabric.leave(rank);
        };
        try {
            for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(live, rank);
        } catch (...) {  // no more threads: the others would wait for those
            fabric.end(2);
            throw;
        }
    }
    std::exception_ptr aborted;
    for (const std::exception_ptr& error : errors) {
        if (!error) continue;
        try {
            std::rethrow_exception(error);
        } catch (const Aborted&) {
            aborted = error;
        }
    }
    if (aborted) std::rethrow_exception(aborted);
}

void for_each_null_rank(const std::function<void(Transport&)>& body) {
    const char* text = std::getenv("ASSAY_NULL_RANKS");
    const long ranks = text ? std::strtol(text, nullptr, 10) : 1;
    if (ranks < 1 || ranks > 1024)
        throw Error("ASSAY_NULL_RANKS is not a number of ranks", "give 1 to 1024");
    run_null_ranks(static_cast<int>(ranks), {}, body);
}

}  // namespace assay
