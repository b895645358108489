// Who connects to whom, with which device, and the records of what the two sides found.
//
// The client's parameters decide; the listening side takes them over. Both bind themselves to their
// device's NUMA node before they touch any memory.
#include "node/rdma/rdma.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/options.hpp"
#include "core/record.hpp"
#include "core/topology.hpp"
#include "node/rdma/control.hpp"
#include "node/rdma/endpoint.hpp"
#include "node/rdma/ports.hpp"
#include "node/rdma/side.hpp"

namespace assay::node {
namespace {

using namespace assay::rdma;

constexpr double greeting_limit = 5;  // seconds, for one who has connected to say who he is

// One of the two, for the records.
struct Party {
    std::string host, port;
    std::optional<int> numa;
};

Party read_party(const Json& hello) {
    try {
        Party party{hello.at("host"), hello.at("port"), std::nullopt};
        if (hello.contains("numa")) party.numa = hello["numa"].get<int>();
        return party;
    } catch (const Json::exception&) {
        throw PeerError("the other side introduces itself in a way that cannot be read",
                        "use the same version of Assay on both sides");
    }
}

Workload read_workload_of(const Options& options) {
    Workload w;
    w.ops.clear();
    const std::string& words = options.text("op");
    for (std::size_t at = 0; at <= words.size();) {
        const std::size_t comma = std::min(words.find(',', at), words.size());
        w.ops.push_back(parse_op(words.substr(at, comma - at)));
        at = comma + 1;
    }
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

class Run {
public:
    Run(const Options& options, Sink& sink)
        : options_(options),
          sink_(sink),
          client_(!options.text("peer").empty()),
          workload_(read_workload_of(options)),
          port_(
              find_port(options.text("device"), static_cast<int>(options.integer("port_number")))) {
        if (options.flag("realtime") && in_software(port_.device))
            throw Error(fmt::format("--realtime would keep {} from its own work: it is done in "
                                    "software, by the processors that wait for it",
                                    port_.device),
                        "leave --realtime out");
        here_ = {host_name(), port_.text(), numa_node(port_.device)};
        bind();
    }

    void go() {
        const auto connection = client_ ? call() : await_client();
        try {
            measure(*connection);
        } catch (const PeerError&) {
            throw;
        } catch (const Json::exception&) {  // something is missing, or of another kind
            connection->abort("what it was told cannot be read");
            throw PeerError(connection->peer() + " said something that cannot be read",
                            "use the same version of Assay on both sides");
        } catch (const std::exception& error) {
            connection->abort(error.what());
            throw;
        }
    }

private:
    void bind();
    std::unique_ptr<Connection> call();
    std::unique_ptr<Connection> await_client();
    void greet(Connection&, const Json& hello);
    void measure(Connection&);
    void record(Op, std::size_t size, const Result&, int mtu);
    Json hello() const;

    const Options& options_;
    Sink& sink_;
    bool client_;
    Workload workload_;
    PortName port_;
    Party here_, there_;
    int memory_node_ = NodeMemory::any;
};

// To the device's NUMA node. A user who has confined this process otherwise (taskset) is told, and
// obeyed.
void Run::bind() {
    const auto node = std::ranges::find_if(
        numa_nodes(), [&](const NumaNode& one) { return here_.numa == one.number; });
    if (node == numa_nodes().end()) return;
    memory_node_ = node->number;
    if (node->cores.empty())
        fmt::print(stderr, "not bound to NUMA node {} of {}: this process may not use its cores\n",
                   node->number, port_.device);
    else bind_to_node(*node);
}

Json Run::hello() const {
    Json said = {{"type", "hello"}, {"host", here_.host}, {"port", here_.port}};
    if (here_.numa) said["numa"] = *here_.numa;
    if (client_) said["workload"] = to_json(workload_);
    return said;
}

std::unique_ptr<Connection> Run::call() {
    const std::string& peer = options_.text("peer");
    const double limit = options_.real("timeout");
    auto connection = std::make_unique<Connection>(
        connect_to(peer, static_cast<int>(options_.integer("port")), limit), peer, limit);
    greet(*connection, connection->exchange(hello()));
    return connection;
}

// The first who is a client of this measurement; others are told on standard error, and sent away.
std::unique_ptr<Connection> Run::await_client() {
    const int port = static_cast<int>(options_.integer("port"));
    const double limit = options_.real("wait");
    Listener listener(port);
    sink_.ready(fmt::format("{} waits for the other side at port {}", here_.port, port));
    int strangers = 0;
    const Nanoseconds deadline = now() + static_cast<Nanoseconds>(limit * 1e9);
    while (const auto caller = listener.accept(seconds(deadline - now()))) {
        auto connection =
            std::make_unique<Connection>(caller->socket, caller->address, greeting_limit);
        try {
            const Json said = connection->receive("hello");
            connection->set_limit(options_.real("timeout"));
            workload_ = read_workload(said.value("workload", Json()));
            greet(*connection, said);
            connection->send(hello());
            return connection;
        } catch (const PeerError& error) {
            ++strangers;
            fmt::print(stderr, "sent away: {}\n", error.what());
        }
    }
    throw Error(
        fmt::format(
            "no client came to port {} within {:g} s{}", port, limit,
            strangers == 0 ? "" : fmt::format(", only {} who could not be understood", strangers)),
        "start the other side: assay rdma -d DEVICE " + here_.host);
}

void Run::greet(Connection& connection, const Json& said) {
    there_ = read_party(said);
    connection.call_peer(fmt::format("{} ({})", there_.host, there_.port));
    if (there_.host == here_.host && there_.port == here_.port)
        fmt::print(stderr, "both sides use {}: nothing leaves the adapter\n", here_.port);
}

void Run::measure(Connection& connection) {
    Needs needs{.memory = Layout::memory(workload_),
                .numa = memory_node_,
                .qps = workload_.qps,
                .depth = workload_.depth,
                .receives = workload_.sends() ? receive_depth : 1,
                .gid_index = static_cast<int>(options_.integer("gid_index")),
                .mtu = static_cast<int>(options_.integer("mtu")),
                .service_level = static_cast<int>(options_.integer("service_level")),
                .traffic_class = static_cast<int>(options_.integer("traffic_class"))};
    if (needs.memory > available_memory())
        throw Error(fmt::format("messages need {} MiB, more than is free", needs.memory >> 20),
                    "ask for smaller sizes (--sizes) or fewer queue pairs (--qps)");
    const auto endpoint = open_endpoint(port_, needs);
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
            const Result result = side.measure(op, size);
            if (!mute) record(op, size, result, endpoint->mtu());
        }
    connection.exchange({{"type", "end"}});
}

// Of the side that the bytes come from: the client, of a read the listening side.
void Run::record(Op op, std::size_t size, const Result& result, int mtu) {
    const bool from_here = client_ == (op != Op::read);
    const Party& from = from_here ? here_ : there_;
    const Party& to = from_here ? there_ : here_;
    const Subject subject{
        .host = from.host, .peer = to.host, .device = from.port, .numa = from.numa};
    const Subject back{.host = to.host, .peer = from.host, .device = to.port, .numa = to.numa};
    const Json params = {{"op", name(op)},
                         {"size", size},
                         {"iterations", workload_.iterations},
                         {"depth", workload_.depth},
                         {"qps", workload_.qps},
                         {"peer_device", to.port},
                         {"bidirectional", workload_.bidirectional},
                         {"mtu", mtu}};
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
    emit("corrupted", {static_cast<double>(result.here.wrong + result.there.wrong)});
    const auto locate = [&](const Checked& checked, const Subject& whose) {
        if (const auto& w = checked.first)
            sink_.corruption(rdma, whose, params, w->message, w->offset, w->expected, w->observed);
    };
    locate(result.here, from_here ? back : subject);
    locate(result.there, from_here ? subject : back);
}

}  // namespace

std::optional<std::string> detail::rdma_waived() { return no_verbs(); }

void detail::run_rdma(const Options& options, Bench& bench) { Run(options, bench.sink).go(); }

}  // namespace assay::node
