// node.settings: the facts of a host and its devices. It has no metrics, only the contexts that
// every node measurement records.
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
