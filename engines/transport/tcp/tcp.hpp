// The TCP transport: one connection between each two ranks, without MPI.
//
// Frames are sent by sendmsg from the caller's buffers. A send completes when the kernel has its
// bytes. Large messages are read directly into the buffer of their receive, small ones through a
// buffer of the connection. A stream whose next message has no receive is not read, so TCP blocks
// its sender.
#pragma once

#include <memory>

#include "transport/direct/peer_transport.hpp"

namespace assay {

std::unique_ptr<direct::PeerTransport> tcp_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

}  // namespace assay
