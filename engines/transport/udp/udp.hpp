// The UDP transport: streams over datagrams with a recovery of its own (recovery.hpp).
//
// Each pair of ranks has a connected socket on both sides, so that the kernel drops datagrams of
// others. The ports are exchanged over the pair's TCP connection, which also shows the end of the
// peer's process. Every datagram carries a keyed tag: of its header, or of all bytes of an
// acknowledgement. Many datagrams go to the kernel at once (GSO, GRO).
#pragma once

#include <memory>

#include "transport/direct/peer_transport.hpp"

namespace assay {

std::unique_ptr<direct::PeerTransport> udp_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

}  // namespace assay
