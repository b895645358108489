// Tests of messages that a rank's libfabric endpoint gets from other senders than its peers, and of
// providers that do not exist.
#ifdef ASSAY_LIBFABRIC

#include <cstring>

#include "../direct/ranks.hpp"
#include "transport/ofi/endpoint.hpp"
#include "transport/ofi/greeting.hpp"

using namespace planted;

namespace {

std::uint64_t refused_messages(const Transport& transport) {
    for (const Counter& counter : transport.counters())
        if (counter.name == "refused_messages") return counter.value;
    return 0;
}

// Greets rank 0 as a rank that comes back does, and so learns the address of its endpoint.
class Greeter final : public Mesh::Observer {
public:
    std::vector<unsigned char> address;

private:
    void on_connected(int, int, const Hello& hello, const session::Proof&) override {
        address = ofi::Greeting::read(std::span(hello.extra).first(hello.extra_length)).address;
    }
    void on_event(int, std::uint32_t) override {}
    void on_lost(int, const std::string&, bool) override {}
};

}  // namespace

TEST_CASE("messages that no peer has sent are refused and counted, and the rank continues") {
    const std::string name = "ofi:tcp";
    if (std::ranges::find(transports(), name) == transports().end()) return;
    Job job(name, 2);
    const auto rank_0 = job.rank(0), rank_1 = job.rank(1);
    {
        std::jthread other([&] { rank_1->connect(); });
        rank_0->connect();
    }
    ofi::Endpoint stranger(ofi::find_provider("tcp", "127.0.0.1"));
    MeshSettings settings = settings_of(name);
    settings.transport = "ofi:" + stranger.provider();
    settings.extra =
        ofi::Greeting{16U << 10, {stranger.address().begin(), stranger.address().end()}}.bytes();
    Greeter greeter;
    Mesh mesh(Listener(read_address("127.0.0.1", 0)), {1, 1, job.token, job.peers}, settings,
              greeter);
    std::vector<PeerChange> changes;
    {
        std::jthread connecting_thread([&] { mesh.connect_all(); });
        std::vector<Ticket> completed;
        poll_until(*rank_0, completed, [&] {
            rank_0->peer_changes(changes);
            return changes.size() == 2;  // the first rank 1 is lost, and another one joins
        });
    }
    fi_addr_t target = 0;
    REQUIRE(stranger.insert(greeter.address, target));
    // Messages with the length of a header but without its tag, one shorter than a header, and one
    // of a rank that does not exist.
    const ofi::Memory memory = stranger.allocate(4096);
    std::memset(memory.data(), 0, 4096);
    std::uint64_t expected = 0;
    for (const auto& [bytes, from] : {std::pair{32, 1U}, {32, 0U}, {7, 1U}, {132, 77U}}) {
        CAPTURE(bytes);
        const std::uint32_t words[] = {from, static_cast<std::uint32_t>(std::max(0, bytes - 32))};
        std::memcpy(memory.data() + 16, words, sizeof words);
        ofi::Buffer message;
        message.data = memory.data();
        message.description = memory.description();
        message.bytes = static_cast<std::size_t>(bytes);
        bool sent = false;
        ++expected;
        std::vector<Ticket> completed;
        std::vector<ofi::Endpoint::Completion> done;
        poll_until(*rank_0, completed, [&] {
            if (!sent) sent = stranger.send(message, target) == 0;
            stranger.poll(done);
            return sent && !message.busy && refused_messages(*rank_0) == expected;
        });
    }
    changes.clear();
    rank_0->peer_changes(changes);
    CHECK(changes.empty());
}

TEST_CASE("a provider that does not exist is refused with a list of those that do") {
    CHECK_THROWS_WITH_AS(check_ofi("nonsense"), doctest::Contains("no provider 'nonsense'"), Error);
    const std::vector<std::string> available = ofi::providers();
    if (available.empty()) return;
    try {
        check_ofi("nonsense");
    } catch (const Error& error) {
        for (const std::string& name : available)
            CHECK(error.fix.find("ofi:" + name) != error.fix.npos);
    }
    CHECK_NOTHROW(check_ofi(available.front()));
    CHECK_NOTHROW(check_ofi(""));
}

#endif
