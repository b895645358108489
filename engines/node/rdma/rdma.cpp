// node.rdma: connects the two sides, opens the devices, and writes the records.
//
// The listening side uses the client's parameters. Both sides bind themselves to their device's
// NUMA node before they touch any memory.
#include "node/rdma/rdma.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/identity.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/text.hpp"
#include "core/topology.hpp"
#include "machine/available_memory.hpp"
#include "node/rdma/control.hpp"
#include "node/rdma/endpoint.hpp"
#include "node/rdma/ports.hpp"
#include "node/rdma/side.hpp"
#include "node/run_token.hpp"

namespace assay::node {
namespace {

using namespace assay::rdma;

constexpr std::uint64_t max_numa_nodes = 1024;  // of Linux (CONFIG_NODES_SHIFT)
constexpr double hello_limit = 5;               // seconds for a connected program to send its hello

// One of the two sides, for the records.
struct Party {
    std::string host, port;
    std::optional<int> numa;
};

Party read_party(const Json& hello) {
    try {
        Party party{printable(hello.at("host")), printable(hello.at("port")), std::nullopt};
        if (hello.contains("numa"))
            party.numa = static_cast<int>(whole_number(hello["numa"], max_numa_nodes));
        return party;
    } catch (const Json::exception&) {
        throw PeerError("the other side sent a hello that cannot be read",
                        "use the same version of Assay on both sides");
    }
}

Workload workload_from(const Options& options) {
    Workload w;
    w.ops.clear();
    for (const std::string& op : split(options.text("op"), ',')) w.ops.push_back(parse_op(op));
    w.sizes.clear();
    for (const std::int64_t size : options.integers("sizes"))
        w.sizes.push_back(static_cast<std::size_t>(size));
    w.iterations = static_cast<std::uint64_t>(options.integer("iterations"));
    w.repeats = static_cast<int>(options.integer("repeats"));
    w.depth = static_cast<int>(options.integer("depth"));
    w.qps = static_cast<int>(options.integer("qps"));
    w.moderation = static_cast<int>(options.integer("cq_mod"));
    w.bidirectional = options.flag("bidirectional");
    return w;
}

// The address that the listening side listens on: the given interface, address or name of this
// host; else the first address of the device's own network interface.
Address listening_address(const std::string& requested, const PortName& device, int port) {
    if (!requested.empty()) return find_local(requested, port).first;
    for (const std::string& interface : interfaces(device))
        if (const auto address = address_of_interface(interface, port)) return *address;
    throw Error(device.text() + " has no network interface with an address to listen on",
                "name an interface or address of this host: --listen 10.1.0.7");
}

class RdmaRun {
public:
    RdmaRun(const Options& options, Sink& sink)
        : options_(options),
          sink_(sink),
          client_(!options.text("peer").empty()),
          token_(read_run_token(options.text("token"))),
          workload_(workload_from(options)),
          port_(
              find_port(options.text("device"), static_cast<int>(options.integer("port_number")))) {
        if (options.flag("realtime") && is_software_device(port_.device))
            throw Error(fmt::format("--realtime would block {}, a software device that needs "
                                    "the processors of the measurement",
                                    port_.device),
                        "leave --realtime out");
        local_ = {host_name(), port_.text(), numa_node(port_.device)};
        bind();
    }

    void run() {
        const auto connection = client_ ? connect_to_listener() : await_client();
        try {
            measure(*connection);
        } catch (const PeerError&) {
            throw;
        } catch (const Json::exception&) {  // a member is missing or has a wrong type
            connection->abort("received a message that cannot be read");
            throw PeerError(connection->peer() + " sent something that cannot be read",
                            "use the same version of Assay on both sides");
        } catch (const std::exception& error) {
            connection->abort(error.what());
            throw;
        }
    }

private:
    void bind();
    std::unique_ptr<Connection> connect_to_listener();
    std::unique_ptr<Connection> await_client();
    void set_peer_party(Connection&, const Json& hello);
    void measure(Connection&);
    void record(Op, std::size_t size, const Result&, int mtu);
    void record_wire(Op, std::size_t size, const std::optional<PortBytes>& before);
    Json params(Op, std::size_t size) const;
    bool sends_payload(Op op) const { return client_ == (op != Op::read); }
    Json hello() const;

    const Options& options_;
    Sink& sink_;
    bool client_;
    std::optional<session::Token> token_;
    Workload workload_;
    PortName port_;
    Party local_, remote_;
    int memory_node_ = NodeMemory::any;
};

// Binds to the device's NUMA node. If the user has confined the process to other cores (taskset),
// it only prints a message.
void RdmaRun::bind() {
    const auto node = std::ranges::find_if(
        numa_nodes(), [&](const NumaNode& entry) { return local_.numa == entry.number; });
    if (node == numa_nodes().end()) return;
    memory_node_ = node->number;
    if (node->cores.empty())
        fmt::print(stderr,
                   "note: not bound to NUMA node {} of {}: this process may not use its cores\n",
                   node->number, port_.device);
    else bind_to_node(*node);
}

Json RdmaRun::hello() const {
    Json message = {{"type", "hello"}, {"host", local_.host}, {"port", local_.port}};
    if (local_.numa) message["numa"] = *local_.numa;
    if (client_) message["workload"] = to_json(workload_);
    return message;
}

std::unique_ptr<Connection> RdmaRun::connect_to_listener() {
    const std::string& peer = options_.text("peer");
    const double limit = options_.real("timeout");
    const int socket = connect_to(peer, static_cast<int>(options_.integer("port")), limit);
    if (token_) prove_token(socket, peer, *token_);
    auto connection = std::make_unique<Connection>(socket, peer, limit);
    set_peer_party(*connection, connection->exchange(hello()));
    return connection;
}

// Waits for the first client of this measurement. Reports others on standard error and closes their
// connections.
std::unique_ptr<Connection> RdmaRun::await_client() {
    const int port = static_cast<int>(options_.integer("port"));
    const double limit = options_.real("wait");
    const Address address = listening_address(options_.text("listen"), port_, port);
    Listener listener(address, token_);
    sink_.ready(
        fmt::format("{} waits for the other side on {}", local_.port, address.with_port_text()));
    std::size_t refused = 0;
    const Nanoseconds deadline = now() + static_cast<Nanoseconds>(limit * 1e9);
    while (const auto incoming = listener.accept(seconds(deadline - now()))) {
        auto connection =
            std::make_unique<Connection>(incoming->socket, incoming->address, hello_limit);
        try {
            const Json received = connection->receive("hello");
            connection->set_limit(options_.real("timeout"));
            workload_ = read_workload(received.value("workload", Json()));
            set_peer_party(*connection, received);
            connection->send(hello());
            return connection;
        } catch (const PeerError& error) {
            ++refused;
            fmt::print(stderr, "note: refused: {}\n", error.what());
        }
    }
    refused += listener.refused();
    throw Error(
        fmt::format("no client came to {} within {:g} s{}", address.with_port_text(), limit,
                    refused == 0 ? "" : fmt::format(", only {} of other programs", refused)),
        "start the other side: assay rdma -d DEVICE --peer " + address.text());
}

void RdmaRun::set_peer_party(Connection& connection, const Json& received) {
    remote_ = read_party(received);
    connection.set_peer(fmt::format("{} ({})", remote_.host, remote_.port));
    if (remote_.host == local_.host && remote_.port == local_.port)
        fmt::print(stderr, "note: both sides use {}: nothing leaves the adapter\n", local_.port);
}

void RdmaRun::measure(Connection& connection) {
    EndpointOptions endpoint_options{
        .memory = Layout::memory(workload_),
        .numa = memory_node_,
        .qps = workload_.qps,
        .depth = workload_.depth,
        .receives = workload_.sends() ? receive_depth : 1,
        .gid_index = static_cast<int>(options_.integer("gid_index")),
        .mtu = static_cast<int>(options_.integer("mtu")),
        .service_level = static_cast<int>(options_.integer("service_level")),
        .traffic_class = static_cast<int>(options_.integer("traffic_class"))};
    if (endpoint_options.memory > available_memory())
        throw Error(
            fmt::format("messages need {} MiB, more than is free", endpoint_options.memory >> 20),
            "ask for smaller sizes (--sizes) or fewer queue pairs (--qps)");
    const auto endpoint = open_endpoint(port_, endpoint_options);
    if (options_.flag("realtime")) enter_realtime();
    Json address = endpoint->address();
    address["type"] = "address";
    endpoint->connect(connection.exchange(address));
    connection.exchange({{"type", "connected"}});
    const Nanoseconds begin = now();
    const bool mute = options_.flag("mute");
    Side side(*endpoint, connection, workload_, client_, options_.real("timeout"),
              [&](double done, const std::string& label) {
                  const double left = done > 0 ? seconds(now() - begin) * (1 - done) / done : -1;
                  if (!mute) sink_.progress(done, label, left);
              });
    for (const std::size_t size : workload_.sizes)
        for (const Op op : workload_.ops) {
            const auto before = port_bytes(port_);
            const Result result = side.measure(op, size);
            if (!mute) record(op, size, result, endpoint->mtu());
            record_wire(op, size, before);
        }
    connection.exchange({{"type", "end"}});
}

// The subject is the side that the bytes come from: the client, or the listening side of a read.
void RdmaRun::record(Op op, std::size_t size, const Result& result, int mtu) {
    const bool sent_here = sends_payload(op);
    const Party& from = sent_here ? local_ : remote_;
    const Party& to = sent_here ? remote_ : local_;
    const Subject subject{
        .host = from.host, .peer = to.host, .device = from.port, .numa = from.numa};
    const Subject reverse{.host = to.host, .peer = from.host, .device = to.port, .numa = to.numa};
    Json params = this->params(op, size);
    params["peer_device"] = to.port;
    params["mtu"] = mtu;
    const auto emit = [&](const char* metric, const std::vector<double>& values) {
        sink_.measurement(rdma, metric, subject, params, summarize(values), values);
    };
    const auto scaled = [&](std::vector<double> rates) {
        for (double& rate : rates) rate *= static_cast<double>(size);
        return rates;
    };
    emit("bandwidth", scaled(result.rates));
    emit("peak", scaled(result.peaks));
    emit("message_rate", result.rates);
    emit("corrupted", {static_cast<double>(result.local.wrong + result.remote.wrong)});
    const auto report_corruption = [&](const Verification& verification, const Subject& source) {
        if (const auto& w = verification.first)
            sink_.corruption(rdma, source, params, w->message, w->offset, w->expected, w->observed);
    };
    report_corruption(result.local, sent_here ? reverse : subject);
    report_corruption(result.remote, sent_here ? subject : reverse);
}

Json RdmaRun::params(Op op, std::size_t size) const {
    return {{"op", name(op)},
            {"size", size},
            {"iterations", workload_.iterations},
            {"depth", workload_.depth},
            {"qps", workload_.qps},
            {"bidirectional", workload_.bidirectional}};
}

// Records the growth of the port's own byte counters over the payload of the timed messages. It
// shows whether the payload passed this side's adapter: the counters also see the verified messages
// and headers, so the ratio is at least 1 if it did.
void RdmaRun::record_wire(Op op, std::size_t size, const std::optional<PortBytes>& before) {
    const auto after = port_bytes(port_);
    const Subject subject{
        .host = local_.host, .peer = remote_.host, .device = local_.port, .numa = local_.numa};
    Json params = this->params(op, size);
    params["peer_device"] = remote_.port;
    params["direction"] = sends_payload(op) ? "sent" : "received";
    if (!before || !after) {
        sink_.waived(rdma, "wire", subject, params,
                     local_.port + " has no counter of its bytes (sysfs counters/port_xmit_data)");
        return;
    }
    const double payload = static_cast<double>(size) * static_cast<double>(workload_.iterations) *
                           workload_.qps * workload_.repeats;
    const std::uint64_t counted_bytes =
        sends_payload(op) ? after->sent - before->sent : after->received - before->received;
    const double share = static_cast<double>(counted_bytes) / payload;
    sink_.measurement(rdma, "wire", subject, params, summarize({&share, 1}));
}

}  // namespace

std::optional<std::string> detail::rdma_waived() { return no_verbs(); }

void detail::run_rdma(const Options& options, Bench& bench) { RdmaRun(options, bench.sink).run(); }

}  // namespace assay::node
