// The flow transport: simulated ranks in one process, whose messages are flows on the routes of a
// network. It simulates event building at sizes for which SimGrid, with its actors and MPI
// requests, takes hours. It has sends and receives, no windows and no collectives.
#pragma once

#include <functional>
#include <string>

#include "transport/flows/network.hpp"
#include "transport/transport.hpp"

namespace assay {

// Runs `body` as each rank of the network. Throws the error of the lowest rank that failed; Aborted
// (transport/null.hpp) only if there was no other.
void run_flow_ranks(const flows::Network& network, const std::function<void(Transport&)>& body);

// The same on the network of a file. Ends the process where a rank has aborted the job.
void for_each_flow_rank(const std::string& path, const std::function<void(Transport&)>& body);

}  // namespace assay
