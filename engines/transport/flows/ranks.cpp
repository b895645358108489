// The ranks of the flow transport, each a fiber.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <new>

#include "core/error.hpp"
#include "core/main.hpp"
#include "transport/flows/flows.hpp"
#include "transport/flows/simulation.hpp"
#include "transport/null.hpp"

namespace assay {
namespace {

class FlowRank final : public Transport {
public:
    FlowRank(flows::Simulation& simulation, int rank) : simulation_(simulation), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return simulation_.network().size(); }
    std::string library() const override { return "flows"; }
    bool simulated() const override { return true; }
    bool keeps_contents() const override { return false; }
    std::string host() const override {
        return simulation_.network().hosts[static_cast<std::size_t>(rank_)];
    }
    Nanoseconds clock() const override { return simulation_.time(); }
    void wake_at(Nanoseconds time) override { simulation_.wake_at(rank_, time); }
    Ticket send(const void* data, std::size_t bytes, int peer, int tag) override {
        return simulation_.post_send(rank_, data, bytes, peer, tag);
    }
    Ticket receive(void* data, std::size_t bytes, int peer, int tag) override {
        return simulation_.post_receive(rank_, data, bytes, peer, tag);
    }
    void poll(std::vector<Ticket>& completed) override { simulation_.poll(rank_, completed); }
    [[noreturn]] void abort(int status) override {
        simulation_.end(status);
        throw Aborted(status);
    }

    // Payloads keep no contents, so their memory is never touched: it is addresses alone.
    std::byte* allocate(std::size_t bytes) override {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        sizes_[memory] = bytes;
        return static_cast<std::byte*>(memory);
    }
    void release(std::byte* memory) override {
        munmap(memory, sizes_[memory]);
        sizes_.erase(memory);
    }

    std::byte* create_window(std::size_t) override { refuse(); }
    void free_window() override {}
    Ticket get(void*, std::size_t, int, std::size_t) override { refuse(); }
    void put(const void*, std::size_t, int, std::size_t) override { refuse(); }
    void flush(int) override { refuse(); }
    void begin_sum(std::span<double>) override { refuse(); }
    void begin_max(std::span<double>) override { refuse(); }
    bool test_collective() override { refuse(); }
    std::vector<std::string> gather(const std::string&) override { refuse(); }
    void broadcast(std::string&) override { refuse(); }

private:
    [[noreturn]] static void refuse() {
        throw Error("flows simulate event building alone", "leave out --flows");
    }

    flows::Simulation& simulation_;
    const int rank_;
    std::map<void*, std::size_t> sizes_;  // B, of what is allocated
};

}  // namespace

void flows::Simulation::run(const std::function<void(Transport&)>& body) {
    for (int number = 0; number < network_.size(); ++number) {
        rank(number).fiber = std::make_unique<Fiber>([this, number, &body] {
            try {
                FlowRank transport(*this, number);
                body(transport);
            } catch (...) {
                rank(number).error = std::current_exception();
                end(exit_unusable);  // the other ranks would wait for this one
            }
        });
        ready_.push_back(number);
    }
    running_ = ranks_.size();
    for (run_ready(); running_ > 0; run_ready()) advance();
    std::exception_ptr aborted;
    for (const auto& each : ranks_) {
        if (!each->error) continue;
        try {
            std::rethrow_exception(each->error);
        } catch (const Aborted&) {
            aborted = each->error;
        }
    }
    if (aborted) std::rethrow_exception(aborted);
}

void run_flow_ranks(const flows::Network& network, const std::function<void(Transport&)>& body) {
    flows::Simulation(network).run(body);
}

void for_each_flow_rank(const std::string& path, const std::function<void(Transport&)>& body) {
    const flows::Network network = flows::Network::read(path);
    try {
        run_flow_ranks(network, body);
    } catch (const Aborted& aborted) {
        _exit(aborted.status);  // the rank has said why
    }
}

}  // namespace assay
