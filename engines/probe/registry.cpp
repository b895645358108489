// The table of every measurement: a new one is a .cpp in its domain and one line here.
#include <array>

#include "core/registry.hpp"
#include "network/measurements.hpp"
#include "node/memory.hpp"
#include "node/noise.hpp"
#include "node/paced.hpp"
#include "node/rdma.hpp"
#include "node/settings.hpp"
#include "node/udp.hpp"

namespace assay {
namespace {

constexpr std::array table = {
    node::settings,
    node::memory,
    node::memory_paced,
    node::noise,
    node::udp_receive,
    node::udp_send,
    node::rdma,
    network::client_server,
    network::all_to_all,
    network::pairs,
    network::counters,
    network::wire,
};

}  // namespace

std::span<const Measurement> measurements() { return table; }

}  // namespace assay
