// Tests of a node's service with clients that belong to the job (members) and hostile callers
// (strangers). The service keeps running, its memory and descriptors are bounded, and it always
// serves the members.
#include "storage/accelerator/service.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "storage/accelerator/node_addresses.hpp"
#include "storage/accelerator/service_client.hpp"
#include "store_fixture.hpp"

namespace session = assay::session;

namespace {

constexpr std::size_t block = 5000;

session::Token token_of(int value) {
    session::Token token;
    token.bytes.fill(static_cast<unsigned char>(value));
    return token;
}

// A node with two ranks; rank 0 has written three blocks.
struct Node {
    Folder folder;
    std::unique_ptr<Store> store = create_store(folder.path, 2);
    Writer writer{*store, 0};
    std::uint32_t slot = slot_of_file(*store, folder.file("out"));
    std::unique_ptr<Service> service;
    std::uint32_t loopback = htonl(INADDR_LOOPBACK);

    Node() {
        std::vector<char> data(block);
        for (int k = 0; k < 3; ++k) {
            std::memset(data.data(), 'a' + k, block);
            REQUIRE(write_block(*store, writer, slot, k * block, data.data(), block));
        }
        std::string error;
        service = Service::start(*store, token_of(1), loopback, error);
        REQUIRE_MESSAGE(service, error);
    }
    ~Node() {
        service.reset();
        store->remove();
    }
    std::unique_ptr<ServiceClient> client(int token = 1) const {
        return ServiceClient::connect_to(loopback, service->port(), token_of(token));
    }
    // A connection without the proof that it belongs to the job.
    int connect_stranger() const {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = loopback;
        to.sin_port = htons(service->port());
        REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
        return fd;
    }
    int connect_member() const {
        const int fd = connect_stranger();
        REQUIRE(session::introduce(fd, token_of(1), service_purpose));
        return fd;
    }
    // Whether a client gets the second block.
    bool serves(ServiceClient& client) const {
        std::vector<char> data(block);
        RemoteRead read{0, block, block, data.data(), 0};
        std::vector<NodeRead> reads{{0, &read}};
        return client.fetch(reads) && read.state == RemoteRead::received &&
               data == std::vector<char>(block, 'b');
    }
    bool serves() const {
        const auto fresh = client();
        return fresh && serves(*fresh);
    }
};

std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* folder = opendir("/proc/self/fd");
    REQUIRE(folder);
    while (readdir(folder)) ++count;
    closedir(folder);
    return count;
}

// Whether the service closes the connection within 60 s; what it sends before is dropped.
bool is_closed_by_service(int fd) {
    for (char bytes[4096];;) {
        pollfd polled{fd, POLLIN, 0};
        if (poll(&polled, 1, 60'000) <= 0) return false;
        if (recv(fd, bytes, sizeof bytes, 0) <= 0) return true;
    }
}

void send_request(int fd, const Request& request) {
    REQUIRE(send(fd, &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
}

}  // namespace

TEST_CASE("a member of the job reads data, records and shared pointers") {
    const Node node;
    const auto client = node.client();
    REQUIRE(client);
    CHECK(node.serves(*client));

    std::vector<std::uint64_t> positions{0, 0};
    std::vector<std::uint64_t> seen;
    const auto handle = [&](std::uint32_t rank, std::uint64_t position, const Record& record,
                            const Progress&) {
        CHECK(rank == 0);
        CHECK(record.begin == position * block);
        seen.push_back(position);
    };
    Update update{};
    REQUIRE(client->request_updates(1, Push::none, positions));
    REQUIRE(client->receive_updates(1, positions, handle, update));
    CHECK(seen == std::vector<std::uint64_t>{0, 1, 2});
    CHECK(positions == std::vector<std::uint64_t>{3, 0});

    // Another connection gets only the records that are not known yet.
    const auto another = node.client();
    REQUIRE(another);
    REQUIRE(another->request_updates(1, Push::none, positions));
    REQUIRE(another->receive_updates(1, positions, handle, update));
    CHECK(seen.size() == 3);

    std::uint64_t before = 1;
    REQUIRE(client->update_shared_file_pointer(7, 42, false, before));
    CHECK(before == 0);
    REQUIRE(another->update_shared_file_pointer(7, 1, true, before));
    CHECK(before == 42);
}

TEST_CASE("a caller with another token is refused and gets no data") {
    const Node node;
    for (int k = 0; k < 20; ++k) CHECK(!node.client(2));
    const int stranger = node.connect_stranger();
    session::Challenge challenge;
    REQUIRE(recv(stranger, &challenge, sizeof challenge, MSG_WAITALL) == sizeof challenge);
    const Request request{Request::read, 0, 0, block};
    std::string bytes(reinterpret_cast<const char*>(&request), sizeof request);
    for (int k = 0; k < 3; ++k) bytes += bytes;
    (void)!send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char answer;
    CHECK(recv(stranger, &answer, 1, 0) <= 0);
    close(stranger);
    CHECK(node.serves());
}

TEST_CASE("400 silent connections hold a bounded number of descriptors, and members are served") {
    const Node node;
    const auto member = node.client();
    REQUIRE(member);
    const std::size_t before = open_descriptors();
    std::vector<int> strangers;
    for (int k = 0; k < 400; ++k) strangers.push_back(node.connect_stranger());
    CHECK(node.serves(*member));
    CHECK(node.serves());  // it connects after all strangers, so all were accepted
    CHECK(open_descriptors() <= before + 400 + 64 + 1);
    std::size_t closed = 0;
    for (const int stranger : strangers) {
        char bytes[64];
        recv(stranger, bytes, sizeof(session::Challenge), 0);
        closed += recv(stranger, bytes, 1, MSG_DONTWAIT) == 0;
        close(stranger);
    }
    CHECK(closed >= 400 - 64);
}

TEST_CASE("garbage of strangers is refused") {
    const Node node;
    std::uint64_t state = 1;
    for (int k = 0; k < 300; ++k) {
        const int stranger = node.connect_stranger();
        std::string bytes;
        for (int n = 0; n < 100; ++n) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes += static_cast<char>(state >> 56);
        }
        if (k % 3 == 0) bytes.replace(0, 8, session::handshake_magic.data(), 8);
        (void)!send(stranger, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (k % 10 == 0) CHECK(is_closed_by_service(stranger));
        close(stranger);
    }
    CHECK(node.serves());
}

TEST_CASE("an invalid request of a member ends only its own connection") {
    const Node node;
    constexpr std::uint64_t huge = ~std::uint64_t{0};
    for (const Request request :
         {Request{0, 0, 0, 0}, Request{6, 0, 0, 0}, Request{0xffffffff, 0, huge, huge},
          Request{Request::read, 2, 0, 1}, Request{Request::read, 0xffffffff, 0, 1},
          Request{Request::read_available, 2, 0, 1}, Request{Request::updates, 1, 0, 0},
          Request{Request::updates, 0xffffffff, 0, 0},
          Request{Request::add_pointer, shared_pointer_slots, 0, 1},
          Request{Request::set_pointer, 0xffffffff, 0, 1}}) {
        const int fd = node.connect_member();
        send_request(fd, request);
        CHECK(is_closed_by_service(fd));
        close(fd);
    }
    CHECK(node.serves());
}

TEST_CASE("requests for bytes beyond the data are answered with 0 bytes") {
    const Node node;
    constexpr std::uint64_t huge = ~std::uint64_t{0};
    const int fd = node.connect_member();
    for (const Request request :
         {Request{Request::read, 0, 0, huge}, Request{Request::read, 0, huge - 7, 8},
          Request{Request::read, 0, 3 * block, 1},
          Request{Request::read, 0, block, huge - block + 2},
          Request{Request::read_available, 0, huge, huge}, Request{Request::read, 1, 0, 1}}) {
        send_request(fd, request);
        std::uint64_t bytes = 1;
        REQUIRE(recv(fd, &bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes);
        CHECK(bytes == 0);
    }
    close(fd);
    CHECK(node.serves());
}

TEST_CASE("answers to a member that does not read them are not buffered without limit") {
    const Node node;
    const int fd = node.connect_member();
    const std::vector<Request> requests(4096, Request{Request::read, 0, 0, 3 * block});
    // The answers would be 3 GB; the service stops receiving when the socket's buffers are full.
    bool blocked = false;
    for (std::size_t sent = 0; sent < 200'000 * sizeof(Request) && !blocked;) {
        const ssize_t n = send(fd, requests.data(), requests.size() * sizeof(Request),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) sent += static_cast<std::size_t>(n);
        pollfd polled{fd, POLLOUT, 0};
        blocked = n < 0 && poll(&polled, 1, 1000) == 0;
    }
    CHECK(blocked);
    CHECK(node.serves());
    close(fd);
}

TEST_CASE("the number of connections is limited, and a closed idle client can connect again") {
    rlimit files{}, reduced{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    reduced = {std::min<rlim_t>(files.rlim_cur, 160), files.rlim_max};  // 40 connections
    REQUIRE(setrlimit(RLIMIT_NOFILE, &reduced) == 0);
    const Node node;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    const std::size_t before = open_descriptors();
    std::vector<std::unique_ptr<ServiceClient>> clients;
    for (int k = 0; k < 100; ++k) {
        clients.push_back(node.client());
        REQUIRE(clients.back());
        REQUIRE(node.serves(*clients.back()));
    }
    // The service keeps the descriptor of a connection that it has closed for sending until the
    // client closes its side too, for 5 s at most.
    std::size_t closed_idle = 0;
    for (auto& client : clients) {
        if (node.serves(*client)) continue;
        CHECK(client->closed());  // so the request may be repeated
        ++closed_idle;
        client = node.client();
        REQUIRE(client);
        CHECK(node.serves(*client));
    }
    CHECK(closed_idle >= 60);
    for (auto& client : clients) client.reset();
    const long long deadline = session::monotonic_ms() + 60'000;
    while (open_descriptors() > before + 1 && session::monotonic_ms() < deadline) usleep(10'000);
    CHECK(open_descriptors() <= before + 1);
}

namespace {

NodeAddresses node_with(std::uint64_t machine, std::vector<std::pair<const char*, int>> networks) {
    NodeAddresses node;
    node.machine = machine;
    for (const auto& [text, bits] : networks) {
        in_addr address{};
        REQUIRE(inet_pton(AF_INET, text, &address) == 1);
        node.entries[node.count++] = {address.s_addr, htonl(~0u << (32 - bits))};
    }
    return node;
}

std::vector<std::string> address_texts(const std::vector<std::uint32_t>& hosts) {
    std::vector<std::string> list;
    for (const auto host : hosts) {
        char text[INET_ADDRSTRLEN];
        list.emplace_back(inet_ntop(AF_INET, &host, text, sizeof text));
    }
    return list;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("the service listens on the network between the nodes") {
    // All nodes are on one machine, as in trials.
    CHECK(address_texts(choose_addresses(
              {node_with(1, {{"10.0.0.1", 24}}), node_with(1, {{"10.0.0.1", 24}})})) ==
          Texts{"127.0.0.1", "127.0.0.1"});
    // A container bridge with the same address on all machines is skipped.
    CHECK(address_texts(choose_addresses(
              {node_with(1, {{"172.17.0.1", 16}, {"192.168.7.1", 24}, {"10.0.0.1", 16}}),
               node_with(2, {{"172.17.0.1", 16}, {"10.0.4.2", 16}, {"192.168.8.2", 24}})})) ==
          Texts{"10.0.0.1", "10.0.4.2"});
    // The nodes have no network in common: a router connects them.
    CHECK(address_texts(choose_addresses({node_with(1, {{"10.1.0.1", 24}}),
                                          node_with(2, {{"10.2.0.2", 24}, {"10.3.0.2", 24}})})) ==
          Texts{"10.1.0.1", "10.2.0.2"});
    // Two of three nodes are on one machine.
    CHECK(address_texts(choose_addresses(
              {node_with(1, {{"10.0.0.1", 24}}), node_with(1, {{"10.0.0.1", 24}}),
               node_with(2, {{"10.0.0.2", 24}})})) == Texts{"10.0.0.1", "10.0.0.1", "10.0.0.2"});
    // The user has named the interface, so the loopback is not used even on one machine.
    auto named = node_with(1, {{"10.0.0.1", 24}});
    named.interface_is_given = 1;
    CHECK(address_texts(choose_addresses({named, named})) == Texts{"10.0.0.1", "10.0.0.1"});
    CHECK(choose_addresses({node_with(1, {}), node_with(2, {})}) ==
          std::vector<std::uint32_t>{0, 0});
}
