// The TCP transport: one connection between each two ranks, without MPI.
//
// Sending: writev of frames from the caller's buffers. A send completes when the kernel has its
// bytes. Receiving: into the buffer of the receive, or through a buffer of its own where messages
// are small. A stream whose next message cannot be taken is not read, so TCP holds its sender back.
#pragma once

#include <memory>

#include "transport/direct/peer_transport.hpp"

namespace assay {

std::unique_ptr<direct::PeerTransport> tcp_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

}  // namespace assay
