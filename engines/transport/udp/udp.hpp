// The UDP transport: streams over datagrams with a recovery of its own (recovery.hpp).
//
// Each pair of ranks has a socket on both sides that is connected, so that the kernel drops what
// comes from elsewhere. Its numbers are told over the pair's TCP connection, which also shows the
// end of the peer's process. Every datagram carries a keyed tag of its header, and an
// acknowledgement one of all its bytes. Many datagrams go to the kernel at once (GSO, GRO).
#pragma once

#include <memory>

#include "transport/direct/peer_transport.hpp"

namespace assay {

std::unique_ptr<direct::PeerTransport> udp_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

}  // namespace assay
