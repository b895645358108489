// The libfabric transport: streams over the messages of a provider (tcp, shm, verbs, psm2, ...).
//
// Each rank has one endpoint of reliable datagrams. Its address travels in the signed greeting of
// the pair's TCP connection, which also shows the end of a peer's process. A message carries bytes
// of the pair's stream, in buffers of the transport: a provider never holds a program's memory, so
// a death leaves none of it in use. Each message has a keyed tag of its header: what strangers, and
// processes that were replaced, send to the endpoint is refused.
#pragma once

#include <memory>
#include <string>

#include "transport/direct/peer_transport.hpp"

namespace assay {

// `settings.transport` is "ofi" or "ofi:PROVIDER". Throws Error where the provider does not work.
std::unique_ptr<direct::PeerTransport> ofi_transport(direct::Listener listener,
                                                     direct::Membership self,
                                                     direct::MeshSettings settings);

// Throws Error if this host has no such provider ("": none at all).
void check_ofi(const std::string& provider);

}  // namespace assay
