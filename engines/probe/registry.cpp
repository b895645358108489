// assay-probe and its table of measurements. A new measurement is a .cpp in its domain and one line
// here.
#include <array>

#include "core/registry.hpp"
#include "events/measurements.hpp"
#include "network/measurements.hpp"
#include "node/gpu/gpu.hpp"
#include "node/memory/memory.hpp"
#include "node/memory/paced.hpp"
#include "node/noise.hpp"
#include "node/rdma/rdma.hpp"
#include "node/settings.hpp"
#include "node/udp/udp.hpp"
#include "probe/engine_main.hpp"
#include "storage/device/device.hpp"

namespace {

using namespace assay;

constexpr std::array table = {
    node::settings,         node::memory,        node::memory_paced, node::noise,
    node::gpu_copy,         node::udp_receive,   node::udp_send,     node::rdma,
    network::client_server, network::all_to_all, network::pairs,     network::one_way,
    network::saturation,    network::counters,   network::wire,      storage::device,
    events::build,          events::slices,      events::all_to_all,
};

}  // namespace

int main(int argc, char** argv) { return engine_main("assay-probe", table, argc, argv); }
