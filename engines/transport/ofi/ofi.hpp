// The libfabric transport: streams over the messages of a provider (tcp, shm, verbs, psm2, ...).
//
// Each rank has one endpoint of reliable datagrams. Its address is in the signed hello on the
// pair's TCP connection, which also shows the end of a peer's process. A message carries bytes of
// the pair's stream, in buffers of the transport: a provider never uses a program's memory, so none
// of it stays in use after a death. Each message has a keyed tag of its header: messages of
// strangers, and of processes that were replaced, are refused.
#pragma once

#include <memory>
#include <string>

#include "transport/direct/peer_transport.hpp"

namespace assay {

// `settings.transport` is "ofi" or "ofi:PROVIDER". Throws Error if the provider cannot be used.
std::unique_ptr<direct::PeerTransport> ofi_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

// Throws Error if this host has no such provider ("": none at all).
void check_ofi(const std::string& provider);

}  // namespace assay
