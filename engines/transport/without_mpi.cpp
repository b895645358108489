// for_each_rank() of executables without MPI. If ASSAY_TRANSPORT is set, the process is one rank of
// a job, as these variables describe it. If ASSAY_FLOWS is set, its ranks are simulated on the
// network of that file (transport/flows). Else they are threads of the null transport.
//
//   ASSAY_TRANSPORT     tcp, udp, or ofi:PROVIDER of libfabric
//   ASSAY_RANK, ASSAY_RANKS
//   ASSAY_INTERFACE     the network interface to listen on; default: that of the default route
//   ASSAY_START_TIMEOUT seconds to wait for a rank that is late; default 60
//   ASSAY_HEARTBEAT_MS  a peer that is silent for three of these is lost; default 50

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/record.hpp"
#include "transport/check.hpp"
#include "transport/direct/launcher_lines.hpp"
#include "transport/direct/peer_transport.hpp"
#include "transport/direct/rendezvous.hpp"
#include "transport/flows/flows.hpp"
#include "transport/null.hpp"
#include "transport/ofi/ofi.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/udp/udp.hpp"

namespace assay {
namespace {

using namespace direct;

// A new transport is one line here. `check` throws Error if a provider ("ofi:PROVIDER") cannot be
// used on this host; transports without `check` have no providers.
struct TransportType {
    const char* name;
    std::unique_ptr<PeerTransport> (*make)(Listener, Membership, MeshSettings);
    void (*check)(const std::string& provider) = nullptr;
};
constexpr std::array transport_types{TransportType{"tcp", tcp_transport},
                                     TransportType{"udp", udp_transport},
                                     TransportType{"ofi", ofi_transport, check_ofi}};

constexpr Nanoseconds leader_margin = 5'000'000'000;  // for rank 0 to say first who is missing
constexpr Nanoseconds table_margin =
    60'000'000'000;  // beyond the start limit: the launcher ends it

int read_variable(const char* variable, int min, int max, std::optional<int> fallback = {}) {
    const char* text = std::getenv(variable);
    if (!text && fallback) return *fallback;
    const std::string value = text ? text : "";
    int read = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), read);
    if (error != std::errc() || end != value.data() + value.size() || read < min || read > max)
        throw Error(fmt::format("{}='{}' is not a number from {} to {}", variable, value, min, max),
                    "start ranks through 'assay'");
    return read;
}

const TransportType& find_transport(const std::string& name) {
    const std::size_t colon = name.find(':');
    std::string names;
    for (const TransportType& transport : transport_types) {
        if (name == transport.name ||
            (transport.check && name.substr(0, colon) == transport.name)) {
            if (transport.check)
                transport.check(colon == std::string::npos ? "" : name.substr(colon + 1));
            return transport;
        }
        names += fmt::format("{}{}", names.empty() ? "" : ", ", transport.name);
    }
    throw Error(fmt::format("no transport is called '{}'", name), "choose one of " + names);
}

// Connects to the other ranks and runs `body` as one of them.
void run_rank(const std::string& name, const std::function<void(Transport&)>& body) {
    const TransportType& type = find_transport(name);
    const int ranks = read_variable("ASSAY_RANKS", 1, 65536);
    const int rank = read_variable("ASSAY_RANK", 0, ranks - 1);
    const int heartbeat_ms = read_variable("ASSAY_HEARTBEAT_MS", 1, 60'000, 50);
    const Nanoseconds start_limit =
        Nanoseconds{read_variable("ASSAY_START_TIMEOUT", 1, 10'000'000, 60)} * 1'000'000'000;
    const char* interface = std::getenv("ASSAY_INTERFACE");
    Listener listener(own_address(interface ? interface : ""));
    const std::string line = listening_line(rank, listener.address());
    if (write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        throw Error("standard output is closed", "start ranks through 'assay'");
    Membership self =
        read_membership(read_line_within(STDIN_FILENO, start_limit + table_margin), rank, ranks);
    const std::shared_ptr<LauncherLines> lines = LauncherLines::read_from(STDIN_FILENO);
    MeshSettings settings;
    settings.transport = name;
    settings.heartbeat_limit = Nanoseconds{heartbeat_ms} * 3'000'000;
    settings.start_limit = start_limit + (rank > 0 ? leader_margin : 0);
    settings.on_waiting = [](std::span<const int> missing) { Sink().waiting(missing); };
    const std::unique_ptr<PeerTransport> transport =
        type.make(std::move(listener), std::move(self), std::move(settings));
    transport->set_launcher(lines);
    transport->connect();
    body(*transport);
    transport->leave();
}

}  // namespace

void for_each_rank(int&, char**&, const std::function<void(Transport&)>& body) {
    if (const char* name = std::getenv("ASSAY_TRANSPORT")) run_rank(name, body);
    else if (const char* network = std::getenv("ASSAY_FLOWS")) for_each_flow_rank(network, body);
    else for_each_null_rank(body);
}

void check_transport(const std::string& name) { find_transport(name); }

}  // namespace assay
