// The identity of a rank's host: its host name, and the other names and addresses by which a host
// list may contain it.
#pragma once

#include <string>
#include <vector>

#include "core/record.hpp"
#include "core/text.hpp"

namespace assay {

struct Identity {
    std::string host;     // host name, made unique among the hosts of the job
    std::string network;  // the kernel's boot id and the network namespace; empty if unknown
    std::vector<std::string> names;      // other names of the host, such as Slurm's node name
    std::vector<std::string> addresses;  // IPv4 and IPv6, of all interfaces but loopback
};

// The identity of this host. `host` is the name that the transport gives it. A simulated host has
// only this name.
Identity identify(const std::string& host, bool simulated);

Json to_json(const Identity& identity);
Identity read_identity(const std::string& json);

// Hosts are told apart by their networks. Two may have the same host name ("localhost"): all but
// the first get a suffix, ~2, ~3. One may have several names (containers that share the machine's
// network): all get the name of the first, whose other names have theirs. Control characters in
// names become '?'.
void make_unique(std::vector<Identity>& ranks);

// One label for each rank: the name of its host; with several ranks on a host "host:0", "host:1",
// ... in the order of ranks.
std::vector<std::string> rank_labels(const std::vector<std::string>& hosts);

// Writes the labels of the ranks, and the names and addresses of their hosts (a `ranks` line).
void report_ranks(Sink& sink, const std::vector<Identity>& ranks,
                  const std::vector<std::string>& labels);

}  // namespace assay
