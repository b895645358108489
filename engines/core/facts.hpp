// What this host is and how it is set: facts, each with a name and a unit, read from /proc and
// /sys.
//
// Every run keeps them as context records: one of the host, one of each device (network interface,
// RDMA port, PCIe device). The table below is all there is to know of them (--describe prints it),
// so that a criterion on a fact can be checked before anything runs. A fact that a machine does not
// have is left out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/record.hpp"

namespace assay {

struct Fact {
    std::string_view name, unit, help;  // unit "": text
};
std::span<const Fact> known_facts();

// A host, or one of its devices ("eth0", "mlx5_0:1", "0000:41:00.0").
struct Context {
    Subject subject;
    Json facts;
};

std::vector<Context> contexts();  // this host's, then those of its devices in a stable order

// B/s that the link of a PCIe device ("0000:41:00.0") carries one way at its present speed and
// width, less its line code; 0 when it is not known.
double pcie_rate(const std::string& address);

}  // namespace assay
