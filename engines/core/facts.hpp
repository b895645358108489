// Facts of this host: hardware, kernel settings and devices, each with a name and a unit, read from
// /proc and /sys.
//
// Every run stores them as context records: one for the host, one for each device (network
// interface, RDMA port, PCIe device). --describe prints all known names, so that a criterion on a
// fact is checked before anything runs. A fact that a machine lacks is left out.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/record.hpp"

namespace assay {

struct Fact {
    std::string_view name, unit, help;  // an empty unit marks text
};
std::span<const Fact> known_facts();

// A host, or one of its devices ("eth0", "mlx5_0:1", "0000:41:00.0").
struct Context {
    Subject subject;
    Json facts;
};

std::vector<Context> contexts();  // the host first, then its devices, sorted

// One-way bandwidth of a PCIe device's link ("0000:41:00.0") in B/s, at its present speed and width
// and without the line code; 0 when unknown.
double pcie_rate(const std::string& address);

}  // namespace assay
