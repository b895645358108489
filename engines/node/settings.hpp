// What a host is and how it is set: no metric, only the contexts that every node measurement tells
// anyway.
#pragma once

#include "core/registry.hpp"

namespace assay::node {

inline constexpr Measurement settings{"node.settings",
                                      Scope::node,
                                      "Facts of the host and its devices: processor and memory "
                                      "settings, socket buffers, MTUs, PCIe links.",
                                      {},
                                      {},
                                      runs_anywhere,
                                      [](const Options&, Bench&) {}};

}  // namespace assay::node
