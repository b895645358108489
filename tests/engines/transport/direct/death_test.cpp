// Tests of the transports without MPI when ranks die, stop or come back, and when strangers connect
// to their port.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <utility>

#include "core/error.hpp"
#include "ranks.hpp"
#include "session/handshake.hpp"

using namespace planted;

namespace {

// Starts a rank in a child process, which polls until it is killed.
pid_t start_process(Job& job, int number, MeshSettings settings) {
    const pid_t child = fork();
    if (child != 0) return child;
    alarm(60);
    const auto rank = job.rank(number, std::move(settings));
    rank->connect();
    for (std::vector<Ticket> completed;; completed.clear()) {
        rank->poll(completed);
        usleep(200);
    }
}

void kill_process(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
}

// Three connected ranks: 0 and 1 in this process, 2 in a child process.
struct ThreeRanks {
    Job job;
    pid_t child;
    std::unique_ptr<PeerTransport> rank_0, rank_1;

    ThreeRanks(const std::string& name, MeshSettings settings) : job(name, 3) {
        child = start_process(job, 2, settings);
        rank_0 = job.rank(0, settings);
        rank_1 = job.rank(1, settings);
        std::jthread other([this] { rank_1->connect(); });
        rank_0->connect();
    }
    ~ThreeRanks() {
        if (child > 0) kill_process(child);
    }
};

int connect_to(const Address& address) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, address.data(), address.length) == 0);
    return fd;
}

bool is_closed_by(PeerTransport& transport, int fd) {
    std::vector<Ticket> completed;
    char bytes[256];
    return poll_until(transport, completed, [&] {
        return recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) == 0 || errno == ECONNRESET;
    });
}

}  // namespace

TEST_CASE("a killed process is reported as lost, its operations fail, and the others continue") {
    for (const std::string& name : transports_that_survive_deaths()) {
        CAPTURE(name);
        MeshSettings settings = settings_of(name);
        settings.heartbeat_limit = 1'000'000'000'000;  // longer than this test waits
        ThreeRanks ranks(name, settings);
        std::vector<std::byte> data(1 << 20);
        const Ticket receive = ranks.rank_0->receive(data.data(), data.size(), 2, 1);
        kill_process(std::exchange(ranks.child, -1));
        // Found by the closed connection, not by the heartbeat.
        const PeerChange change = wait_for_change(*ranks.rank_0);
        CHECK(change.rank == 2);
        CHECK(change.state == PeerChange::State::lost);
        std::vector<Ticket> failed;
        ranks.rank_0->poll_failed(failed);
        CHECK(failed == std::vector{receive});
        const Ticket late = ranks.rank_0->send(data.data(), 1, 2, 1);
        failed.clear();
        ranks.rank_0->poll_failed(failed);
        CHECK(failed == std::vector{late});
        // The other two ranks still communicate.
        char sent = 'a', received = 0;
        const Ticket out = ranks.rank_0->send(&sent, 1, 1, 5);
        const Ticket in = ranks.rank_1->receive(&received, 1, 0, 5);
        std::jthread other([&] { wait_for(*ranks.rank_1, {in}); });
        wait_for(*ranks.rank_0, {out});
        other.join();
        CHECK(received == 'a');
        CHECK_THROWS_WITH_AS(ranks.rank_0->gather("x"),
                             doctest::Contains("rank 2 at 127.0.0.1 was lost"), Error);
        // check_peers() reports it to a rank that waits for a transfer.
        CHECK_THROWS_WITH_AS(ranks.rank_0->check_peers(),
                             doctest::Contains("rank 2 at 127.0.0.1 was lost"), Error);
    }
}

TEST_CASE("a rank comes back with a higher incarnation, and an old one is refused") {
    for (const std::string& name : transports_that_survive_deaths()) {
        CAPTURE(name);
        ThreeRanks ranks(name, settings_of(name));
        kill_process(std::exchange(ranks.child, -1));
        CHECK(wait_for_change(*ranks.rank_0).state == PeerChange::State::lost);
        CHECK(wait_for_change(*ranks.rank_1).state == PeerChange::State::lost);
        std::unique_ptr<PeerTransport> rank_2 = ranks.job.replace_rank(2, 1);
        PeerChange changes_seen[2] = {{-1, PeerChange::State::lost}, {-1, PeerChange::State::lost}};
        char received[2] = {};
        const auto receive_from_new_rank = [&](PeerTransport& rank, int index) {
            changes_seen[index] = wait_for_change(rank);
            wait_for(rank, {rank.receive(&received[index], 1, 2, 4)});
        };
        {
            std::jthread a([&] { receive_from_new_rank(*ranks.rank_0, 0); }),
                b([&] { receive_from_new_rank(*ranks.rank_1, 1); });
            rank_2->connect();
            char sent = 'b';
            wait_for(*rank_2, {rank_2->send(&sent, 1, 0, 4), rank_2->send(&sent, 1, 1, 4)});
            std::vector<Ticket> completed;
            while (received[0] != 'b' || received[1] != 'b') rank_2->poll(completed);
        }
        for (const PeerChange& change : changes_seen) {
            CHECK(change.rank == 2);
            CHECK(change.state == PeerChange::State::joined);
        }
        CHECK(rank_2->incarnation() == 1);
        double value = 0;
        CHECK_THROWS_WITH_AS(rank_2->begin_sum({&value, 1}), doctest::Contains("came back"), Error);
        // Both ranks refuse a second rank with the same incarnation.
        std::unique_ptr<PeerTransport> copy = ranks.job.replace_rank(2, 1);
        std::vector<PeerChange> changes;
        {
            std::atomic<bool> done{false};
            const auto poll = [&](PeerTransport& rank) {
                for (std::vector<Ticket> completed; !done; completed.clear()) rank.poll(completed);
            };
            std::jthread a([&] { poll(*ranks.rank_0); }), b([&] { poll(*ranks.rank_1); });
            copy->connect();
            done = true;
        }
        copy->peer_changes(changes);
        CHECK(changes.size() == 2);
        CHECK(ranks.rank_0->counters().front().value == 1);
    }
}

TEST_CASE("a stopped process counts as lost after the heartbeat limit" *
          doctest::test_suite("acceptance")) {
    for (const std::string& name : transports_that_survive_deaths()) {
        CAPTURE(name);
        MeshSettings settings = settings_of(name);
        settings.heartbeat_limit = 1'000'000'000;
        ThreeRanks ranks(name, settings);
        const Nanoseconds stopped = now();
        kill(ranks.child, SIGSTOP);
        const PeerChange change = wait_for_change(*ranks.rank_0);
        CHECK(change.rank == 2);
        CHECK(change.state == PeerChange::State::lost);
        CHECK(now() - stopped > settings.heartbeat_limit / 2);
    }
}

TEST_CASE("a rank that is stopped while others connect is waited for" *
          doctest::test_suite("slow")) {
    for (const std::string& name : transports_that_survive_deaths()) {
        CAPTURE(name);
        Job job(name, 3);
        MeshSettings settings = settings_of(name);
        settings.heartbeat_limit = 100'000'000;
        const pid_t child = start_process(job, 2, settings);
        std::atomic<bool> is_heard{false}, has_connected{false};
        MeshSettings of_rank_0 = settings;
        of_rank_0.on_waiting = [&](std::span<const int> missing) {
            if (std::ranges::equal(missing, std::array{1})) is_heard = true;
        };
        const auto rank_0 = job.rank(0, of_rank_0), rank_1 = job.rank(1, settings);
        {
            std::jthread other([&] {
                while (!is_heard) usleep(1000);
                kill(child, SIGSTOP);
                usleep(400'000);  // four times the limit of silence
                kill(child, SIGCONT);
                CHECK_NOTHROW(rank_1->connect());
                has_connected = true;
            });
            CHECK_NOTHROW(rank_0->connect());
            is_heard = true;
            for (std::vector<Ticket> completed; !has_connected; completed.clear())
                rank_0->poll(completed);
        }
        kill_process(child);
    }
}

TEST_CASE("a rank that is stopped until a peer has given it up calls again" *
          doctest::test_suite("acceptance")) {
    Job job("tcp", 2);
    const MeshSettings settings = settings_of("tcp");
    const pid_t child = start_process(job, 1, settings);
    const auto rank_0 = job.rank(0, settings);
    usleep(500'000);  // the child waits for rank 0's answer
    kill(child, SIGSTOP);
    {
        std::jthread other([&] {
            usleep(7'000'000);
            kill(child, SIGCONT);
        });
        CHECK_NOTHROW(rank_0->connect());
    }
    kill_process(child);
}

TEST_CASE("strangers are refused, and the job continues") {
    Job job("tcp", 2);
    const Address address = job.listeners[0]->address();
    const auto rank_0 = job.rank(0), rank_1 = job.rank(1);
    {
        std::jthread other([&] { rank_1->connect(); });
        rank_0->connect();
    }
    SUBCASE("a web browser") {
        const int fd = connect_to(address);
        const std::string request = "GET / HTTP/1.1\r\n\r\n";
        REQUIRE(send(fd, request.data(), request.size(), 0) > 0);
        CHECK(is_closed_by(*rank_0, fd));
        close(fd);
    }
    SUBCASE("an Assay with another token") {
        const int fd = connect_to(address);
        std::atomic<bool> ended{false};
        bool admitted = true;
        {
            std::jthread stranger([&] {
                admitted = session::introduce(fd, *session::make_token(), "assay transport 1");
                ended = true;
            });
            std::vector<Ticket> completed;
            poll_until(*rank_0, completed, [&] { return ended.load(); });
        }
        CHECK_FALSE(admitted);
        close(fd);
    }
    SUBCASE("a caller with the token that sends an invalid hello") {
        const int fd = connect_to(address);
        std::atomic<bool> ended{false};
        bool admitted = false;
        {
            std::jthread caller([&] {
                admitted = session::introduce(fd, job.token, "assay transport 1");
                ended = true;
            });
            std::vector<Ticket> completed;
            poll_until(*rank_0, completed, [&] { return ended.load(); });
        }
        REQUIRE(admitted);
        Hello hello{};
        REQUIRE(send(fd, &hello, sizeof hello, 0) == sizeof hello);
        CHECK(is_closed_by(*rank_0, fd));
        close(fd);
    }
    CHECK(rank_0->counters().front().value == 1);
    char sent = 'c', received = 0;
    const Ticket out = rank_0->send(&sent, 1, 1, 1), in = rank_1->receive(&received, 1, 0, 1);
    wait_for(*rank_0, {out});
    wait_for(*rank_1, {in});
    CHECK(received == 'c');
}

TEST_CASE("a rank with another token or transport gets an error that says so") {
    Job job("tcp", 2);
    const auto rank_0 = job.rank(0);
    std::atomic<bool> done{false};
    std::jthread server([&] {
        // No valid rank connects, so this rank polls until the test ends it.
        std::vector<Ticket> completed;
        while (!done) rank_0->poll(completed);
    });
    MeshSettings settings = settings_of("tcp");
    settings.start_limit = 3'000'000'000;
    SUBCASE("token") {
        job.token = *session::make_token();
        const auto rank_1 = job.rank(1, settings);
        CHECK_THROWS_WITH_AS(rank_1->connect(), doctest::Contains("does not belong to this job"),
                             Error);
    }
    SUBCASE("transport") {
        settings.transport = "udp";
        const auto rank_1 = job.rank(1, settings);
        CHECK_THROWS_WITH_AS(rank_1->connect(), doctest::Contains("refused this rank"), Error);
    }
    done = true;
}

TEST_CASE("rank 0 reports the ranks that the start waits for until they are there") {
    Job job("tcp", 3);
    std::vector<std::vector<int>> reports;
    std::promise<void> is_awaited;
    MeshSettings settings = settings_of("tcp");
    settings.on_waiting = [&](std::span<const int> missing) {
        if (reports.empty()) is_awaited.set_value();
        reports.emplace_back(missing.begin(), missing.end());
    };
    const auto rank_0 = job.rank(0, settings), rank_1 = job.rank(1), rank_2 = job.rank(2);
    std::jthread first([&] { rank_0->connect(); });
    std::jthread second([&] { rank_1->connect(); });
    is_awaited.get_future().wait();
    std::jthread third([&] { rank_2->connect(); });
    first.join();
    second.join();
    REQUIRE(reports.size() >= 2);
    CHECK(std::ranges::find(reports.front(), 2) != reports.front().end());
    CHECK(reports.back().empty());
}

TEST_CASE("a rank that connects and does not answer is no stranger") {
    Job job("tcp", 2);  // the kernel accepts for rank 0, which is stopped
    MeshSettings settings = settings_of("tcp");
    settings.start_limit = 300'000'000;
    const auto rank_1 = job.rank(1, settings);
    CHECK_THROWS_WITH_AS(rank_1->connect(), doctest::Contains("it does not answer"), Error);
}

TEST_CASE("over shared memory the death of a rank ends the others with an error that names it") {
    const std::string name = "ofi:shm";
    if (std::ranges::find(transports(), name) == transports().end()) return;
    ThreeRanks ranks(name, settings_of(name));
    kill_process(std::exchange(ranks.child, -1));
    std::vector<Ticket> completed;
    for (PeerTransport* rank : {ranks.rank_0.get(), ranks.rank_1.get()})
        CHECK_THROWS_WITH_AS(poll_until(*rank, completed, [] { return false; }),
                             doctest::Contains("rank 2 was lost"), Error);
}

TEST_CASE("a rank that leaves in order is not reported as lost") {
    for (const std::string& name : transports()) {
        CAPTURE(name);
        std::atomic<int> losses{0};
        run(name, 3, [&](PeerTransport& transport) {
            if (transport.rank() == 1) return;  // leaves at once
            std::vector<Ticket> completed;
            const Nanoseconds begin = now();
            while (now() - begin < 100'000'000) transport.poll(completed);
            CHECK_NOTHROW(transport.check_peers());
            std::vector<PeerChange> changes;
            transport.peer_changes(changes);
            losses += static_cast<int>(changes.size());
        });
        CHECK(losses == 0);
    }
}
